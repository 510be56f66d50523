-- Takes many keys that are simply free, each for a token of its own: what many callers want at the same moment, in one step.
--
-- KEYS[3i - 2]  lock key
-- KEYS[3i - 1]  queue of the key
-- KEYS[3i]      burial of its token
-- KEYS[#KEYS]   fencing counter of all of them
--
-- ARGV[3i - 2]  token
-- ARGV[3i - 1]  expiry in milliseconds
-- ARGV[3i]      "<host>/<pid> <function>"
--
-- Result        for each key its fencing token; 0 where the key is not simply free and must be asked for by itself
--
-- Atomic as every script, and harmless when repeated: a key that its token has already is not free.

local last = #KEYS - 1
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local since = string.format('%.0f', now)
local answer = {}
local next = now
local counter = redis.pcall('SET', KEYS[#KEYS], now + last / 3 - 1, 'GET')
if counter then
  local number = type(counter) == 'string' and tonumber(counter)
  if not number or number < 0 or number >= 9007199254740991 or number % 1 ~= 0 then
    if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE', 1, true) then
      return counter
    end
    if type(counter) == 'string' then
      redis.call('SET', KEYS[#KEYS], counter)
    end
    for i = 1, last, 3 do
      answer[#answer + 1] = 0
    end
    return answer
  end
  if number >= now then
    next = number + 1
    redis.call('SET', KEYS[#KEYS], number + last / 3)
  end
end
-- Most have neither a line nor a burial: one question for all of them.
local companions = {}
for i = 1, last, 3 do
  companions[#companions + 1] = KEYS[i + 1]
  companions[#companions + 1] = KEYS[i + 2]
end
local is_plain = last > 0 and redis.call('EXISTS', unpack(companions)) == 0
for i = 1, last, 3 do
  local fencing = 0
  if is_plain or redis.call('EXISTS', KEYS[i + 1], KEYS[i + 2]) == 0 then
    local value = ARGV[i] .. string.format(' %.0f ', next) .. ARGV[i + 2] .. ' ' .. since
    if redis.call('SET', KEYS[i], value, 'NX', 'PX', ARGV[i + 1]) then
      fencing, next = next, next + 1
    end
  end
  answer[#answer + 1] = fencing
end
return answer
