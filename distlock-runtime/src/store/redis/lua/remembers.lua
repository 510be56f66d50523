-- Whether a server remembers what it granted.
--
-- KEYS[1]  epoch: since when it remembers, in microseconds; 0 if it was told that there was nothing before, and has granted
--          nothing since
-- ARGV[1]  milliseconds that it abstains after a loss of memory
--
-- Result   1 it does; 0 it is new, or has lost its memory

local time = redis.call('TIME')
local epoch = redis.pcall('GET', KEYS[1])
epoch = type(epoch) == 'string' and tonumber(epoch) or 0
return epoch > 0 and time[1] * 1000000 + time[2] >= epoch + ARGV[1] * 1000 and 1 or 0
