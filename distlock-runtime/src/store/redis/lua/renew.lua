-- Prolongs lock keys that still belong to their tokens.
--
-- KEYS[i]       lock key
-- ARGV[2i - 1]  token
-- ARGV[2i]      expiry in milliseconds
--
-- Result        one number a key: 1 prolonged, 0 absent, -1 somebody else's
--
-- Atomic for the whole batch. Upwards only: a late, shorter renewal never shortens a lease. Never creates a key, and
-- writes with PEXPIRE alone, which a server that is out of memory still accepts.

local answers = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if not held then
    -- Changes nothing. A demoted server refuses it, and may not say what it does not know any more.
    redis.call('PEXPIRE', key, ARGV[2 * i])
    answers[i] = 0
  elseif type(held) == 'table' then
    if not string.find(held.err, 'WRONGTYPE', 1, true) then
      return held
    end
    answers[i] = -1
  elseif string.sub(held, 1, 36) ~= ARGV[2 * i - 1] then
    answers[i] = -1
  else
    if redis.call('PTTL', key) < tonumber(ARGV[2 * i]) then
      redis.call('PEXPIRE', key, ARGV[2 * i])
    end
    answers[i] = 1
  end
end
return answers
