-- Whether a server remembers what it granted; see epoch.lua.
--
-- KEYS[1]  epoch
-- ARGV[1]  milliseconds that it abstains after a loss of memory
--
-- Result   1 it does; 0 it is new, or has lost everything; -1 it was in use before its last start, and may have lost some

local time = redis.call('TIME')
local epoch, again = epoch_at(KEYS[1])
if (epoch or 0) > 0 and time[1] * 1000000 + time[2] >= epoch + ARGV[1] * 1000 then
  return 1
end
return again and -1 or 0
