-- Whether a server remembers what it granted; see epoch.lua.
--
-- KEYS[1]  epoch
-- ARGV[1]  milliseconds that it abstains after a loss of memory
--
-- Result   1 it does; 0 it is new, or has lost its memory

local time = redis.call('TIME')
local epoch = epoch_at(KEYS[1]) or 0
return epoch > 0 and time[1] * 1000000 + time[2] >= epoch + ARGV[1] * 1000 and 1 or 0
