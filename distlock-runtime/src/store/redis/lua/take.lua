-- Takes many keys that are simply free, each for a token of its own: what many callers want at the same moment, in one step.
--
-- KEYS[3i - 2]  lock key
-- KEYS[3i - 1]  queue of the key
-- KEYS[3i]      burial of its token
-- KEYS[#KEYS]   fencing counter of all of them
--
-- ARGV[i]       token
-- then for each key, or once if it is the same for all
-- ARGV[j]       expiry in milliseconds
-- ARGV[j + 1]   "<host>/<pid> <function>"
--
-- Result        the fencing token of the first key, with those of the others behind it, if all keys were simply free
--               | for each key its fencing token; 0 where the key is not simply free and must be asked for by itself
--
-- Atomic as every script, and harmless when repeated: a key that its token has already is not free.

local count = (#KEYS - 1) / 3
local each = #ARGV == count + 2 and 0 or 2

local time = redis.call('TIME')
local micros = tonumber(time[2])
-- The number of a key, as a text: seconds and microseconds, as in acquire.lua, or another one if the counter is ahead.
local ahead
local function number(i)
  return ahead and string.format('%.0f', ahead + i) or time[1] .. string.format('%06d', micros + i)
end
if micros + count >= 1000000 then
  ahead = time[1] * 1000000 + micros
end
local since = number(1)
local counter = redis.pcall('SET', KEYS[#KEYS], number(count), 'GET')
if counter and not (type(counter) == 'string' and #counter == 16 and counter < since) then
  local last = type(counter) == 'string' and tonumber(counter)
  if not last or last < 0 or last >= 9007199254740991 or last % 1 ~= 0 then
    if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE', 1, true) then
      return counter
    end
    if type(counter) == 'string' then
      redis.call('SET', KEYS[#KEYS], counter)
    end
    local answer = {}
    for i = 1, count do
      answer[i] = 0
    end
    return answer
  end
  if last >= time[1] * 1000000 + micros + 1 then
    ahead = last
    redis.call('SET', KEYS[#KEYS], number(count))
  end
end
-- Most are free, and have neither a line nor a burial: one question for all of them.
local is_plain = redis.call('EXISTS', unpack(KEYS, 1, #KEYS - 1)) == 0
local missed
for i = 1, count do
  local k, j = 3 * i, count + 1 + each * (i - 1)
  local fencing = number(i)
  local is_taken = false
  if is_plain or redis.call('EXISTS', KEYS[k - 1], KEYS[k]) == 0 then
    local value = ARGV[i] .. ' ' .. fencing .. ' ' .. ARGV[j + 1] .. ' ' .. since
    is_taken = redis.call('SET', KEYS[k - 2], value, 'NX', 'PX', ARGV[j])
  end
  if not is_taken then
    missed = missed or {}
    missed[i] = true
  end
end
if not missed then
  return tonumber(number(1))
end
local answer = {}
for i = 1, count do
  answer[i] = missed[i] and 0 or tonumber(number(i))
end
return answer
