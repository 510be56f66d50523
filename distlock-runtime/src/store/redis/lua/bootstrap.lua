-- Has a server of a new deployment remember from now on; see epoch.lua.
--
-- KEYS[1]  epoch
-- ARGV[1]  milliseconds that it abstains after a loss of memory
--
-- One that remembers already is left as it is: somebody else told it, and it has granted since.

local time = redis.call('TIME')
local epoch = epoch_at(KEYS[1])
if not epoch or time[1] * 1000000 + time[2] < epoch + ARGV[1] * 1000 then
  begin_epoch(KEYS[1], 0)
end
return 1
