-- Gives keys back that belong to their tokens, takes the tokens' entries out of the lines, and buries a token where a copy of
-- its acquisition may be late.
--
-- For each key, as in queue.lua, and then
-- KEYS[i + 3]  burial of its token
--
-- For each key
-- ARGV[j]      token
-- ARGV[j + 1]  milliseconds to keep the key taken, owned by nobody; 0 deletes it
-- ARGV[j + 2]  milliseconds to bury the token; 0 does not
-- If all keys are deleted and no token is buried, KEYS[i + 3], ARGV[j + 1] and ARGV[j + 2] are left out.
--
-- Result       1 if all keys are given back that nobody waits for
--              | for each key 1 given back, 0 absent, -1 somebody else's
--
-- Atomic, and harmless when repeated. The first write of each branch needs no memory (DEL, PEXPIRE, ZREM): a server that
-- is out of memory refuses a script only at a first write that needs some. A line that cannot be read keeps no lock.

-- The common case first, and cheap: keys that nobody waits for, to be deleted.
local companions, arguments = 4, 3
if #KEYS == #ARGV * 3 then
  companions, arguments = 3, 1
  if #ARGV == 1 then
    if redis.call('EXISTS', KEYS[2]) == 0 then
      local held = redis.pcall('GET', KEYS[1])
      if type(held) == 'string' and string.sub(held, 1, 36) == ARGV[1] then
        redis.call('DEL', KEYS[1])
        return 1
      end
    end
  else
    local locks, queues = {}, {}
    for i = 1, #ARGV do
      locks[i], queues[i] = KEYS[3 * i - 2], KEYS[3 * i - 1]
    end
    if redis.call('EXISTS', unpack(queues)) == 0 then
      local are_all = true
      for i, lock in ipairs(locks) do
        local held = are_all and redis.pcall('GET', lock)
        are_all = type(held) == 'string' and string.sub(held, 1, 36) == ARGV[i]
      end
      if are_all then
        redis.call('DEL', unpack(locks))
        return 1
      end
    end
  end
end

local answers = {}
local j = 1
for i = 1, #KEYS, companions do
  local token, keep, bury = ARGV[j], '0', '0'
  if arguments == 3 then
    keep, bury = ARGV[j + 1], ARGV[j + 2]
  end
  j = j + arguments
  local held = redis.pcall('GET', KEYS[i])
  local free = not held
  local answer = 1
  if free then
    redis.call('DEL', KEYS[i])
    answer = 0
  elseif type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then
      return held
    end
    answer = -1
  elseif string.sub(held, 1, 36) ~= token then
    answer = -1
  elseif keep == '0' then
    redis.call('DEL', KEYS[i])
    free = true
  else
    redis.call('PEXPIRE', KEYS[i], keep)
    redis.call('SET', KEYS[i], '00000000-0000-0000-0000-000000000000' .. string.sub(held, 37), 'KEEPTTL')
  end
  if redis.call('EXISTS', KEYS[i + 1]) == 1 then
    pcall(function()
      local _, leave, _, serve = line()
      leave(i, token)
      if free then
        serve(i)
      end
    end)
  end
  if bury ~= '0' then
    redis.call('DEL', KEYS[i + 3])
    redis.call('SET', KEYS[i + 3], '', 'PX', bury)
  end
  answers[#answers + 1] = answer
end
return answers
