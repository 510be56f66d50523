-- Writes something about lock keys, so that the connection that sends this can wait until the replicas have got that far:
-- WAIT counts the writes of its own connection, and what is behind a write in the stream was before it.
--
-- KEYS[i]       lock key
-- ARGV[2i - 1]  token
-- ARGV[2i]      expiry in milliseconds
--
-- Result        one number a key: 1 its token has it here, 0 not
--
-- Upwards only, and never creates a key, as in renew.lua; but where the expiry does not rise it is written again.

local answers = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  answers[i] = 0
  if not held then
    -- Changes nothing. A demoted server refuses it, as in renew.lua.
    redis.call('PEXPIRE', key, ARGV[2 * i])
  elseif type(held) == 'string' and string.sub(held, 1, 36) == ARGV[2 * i - 1] then
    local left = redis.call('PTTL', key)
    redis.call('PEXPIRE', key, left > tonumber(ARGV[2 * i]) and left or ARGV[2 * i])
    answers[i] = 1
  end
end
return answers
