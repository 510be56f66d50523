-- Puts leases that a majority of servers has just prolonged on a server that lacks them: it was away, or late, or has lost
-- its memory.
--
-- KEYS[3i - 2]    lock key
-- KEYS[3i - 1]    burial of its token
-- KEYS[3i]        fencing counter
-- KEYS[#KEYS]     epoch; see epoch.lua
--
-- ARGV[5i - 4]    token
-- ARGV[5i - 3]    expiry in milliseconds
-- ARGV[5i - 2]    "<host>/<pid> <function>"
-- ARGV[5i - 1]    fencing number of the lease
-- ARGV[5i]        the last number that is reserved for it
-- ARGV[#ARGV]     milliseconds to abstain after a loss of memory; 0 does not
--
-- Result          for each key 1 if it stands here now, 0 if not
--
-- Never touches what is there. The counter is only raised.

local answers = {}
local quarantine = tonumber(ARGV[#ARGV]) * 1000
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local abstains = false
if quarantine > 0 then
  local epoch = epoch_at(KEYS[#KEYS])
  abstains = not epoch or now < epoch + quarantine
end
local j = 1
for i = 1, #KEYS - 1, 3 do
  local answer = 0
  if not abstains and redis.call('EXISTS', KEYS[i], KEYS[i + 1]) == 0 then
    local counter = redis.pcall('GET', KEYS[i + 2])
    local number = not counter and 0 or type(counter) == 'string' and tonumber(counter)
    if number then
      if number < tonumber(ARGV[j + 4]) then
        redis.call('SET', KEYS[i + 2], ARGV[j + 4])
      end
      local value = ARGV[j] .. ' ' .. ARGV[j + 3] .. ' ' .. ARGV[j + 2] .. string.format(' %.0f', now)
      redis.call('SET', KEYS[i], value, 'PX', ARGV[j + 1])
      answer = 1
    end
  end
  answers[#answers + 1] = answer
  j = j + 5
end
return answers
