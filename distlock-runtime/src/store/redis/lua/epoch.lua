-- Since when a server remembers what it granted.
--
-- The key says it with the server's run: one that was started anew may come back with its epoch and without its latest
-- writes, as from a snapshot, so the epoch of another run counts for nothing. But it shows that the server is not new, which
-- the next epoch says then as well: "<since> <run> again".

-- Different after each start; "" where it is not told, or the user may not ask. Then any run counts, and only a server that
-- comes back without its epoch is noticed.
local function run()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%w+)') or ''
end

-- In microseconds; 0 if it was told that there was nothing before, and has granted nothing since; nil if it has lost its
-- memory, or is new. And whether there was a run before that is known of.
local function epoch_at(key)
  local text = redis.pcall('GET', key)
  if not text then
    return nil, false
  end
  local since, of, again = string.match(type(text) == 'string' and text or '', '^(%d+) (%w*)( ?%a*)$')
  local now = run()
  if not since or now ~= '' and of ~= now then
    return nil, true
  end
  return tonumber(since), again ~= ''
end

local function begin_epoch(key, since, again)
  redis.call('SET', key, string.format('%.0f ', since) .. run() .. (again and ' again' or ''))
end
