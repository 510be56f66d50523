-- Whether a server remembers what it granted.
--
-- KEYS[1]  epoch: since when it remembers, in microseconds
-- KEYS[2]  fencing counter
-- ARGV[1]  milliseconds that it abstains after a loss of memory
--
-- Result   1 it does, 0 it is new or has lost its memory

local time = redis.call('TIME')
local epoch = redis.pcall('GET', KEYS[1])
epoch = type(epoch) == 'string' and tonumber(epoch)
if epoch and time[1] * 1000000 + time[2] >= epoch + ARGV[1] * 1000 then
  return 1
end
return redis.call('EXISTS', KEYS[2])
