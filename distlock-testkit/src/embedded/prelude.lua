-- What surrounds every script: the `redis` table, protected globals, and the text of errors.
--
-- Arguments  trace    gives source and line of the script's innermost frame
--            raised   gives the text of the error that `redis.call` has just raised
--            sha1hex  hashes a string
--
-- Result     the environment to compile scripts in, and
--            run(script, call, pcall, keys, arguments) -> true, result | false, {err, source, line}
--
-- `redis.call` itself is no Lua function: `return redis.call(…)` is a tail call, and would leave no trace of its line.

local trace, raised, sha1hex = ...
local error, loadstring, pairs, pcall, select, setfenv, setmetatable, tostring, type, xpcall =
  error, loadstring, pairs, pcall, select, setfenv, setmetatable, tostring, type, xpcall
local find, gsub, floor = string.find, string.gsub, math.floor

local function failure(text)
  return {err = text}
end

local redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  log = function() end,
  sha1hex = function(...)
    if select('#', ...) ~= 1 then
      error(failure('ERR wrong number of arguments'))
    end
    return sha1hex(tostring((...)))
  end,
  status_reply = function(...)
    if select('#', ...) ~= 1 or type((...)) ~= 'string' then
      return failure('ERR wrong number or type of arguments')
    end
    return {ok = (...)}
  end,
  error_reply = function(...)
    if select('#', ...) ~= 1 or type((...)) ~= 'string' then
      return failure('ERR wrong number or type of arguments')
    end
    local text = gsub(gsub((...), '^%-', ''), '[\r\n]+$', '')
    if not find(text, ' ', 1, true) then
      text = 'ERR ' .. text
    end
    return failure(text)
  end,
}

-- A script may not leave anything behind for the next one.
local function protected(table)
  return setmetatable({}, {
    __index = table,
    __newindex = function() error('Attempt to modify a readonly table', 2) end,
    __metatable = false,
  })
end

local globals = {}
for _, name in pairs({
  'assert', 'error', 'getmetatable', 'ipairs', 'next', 'pairs', 'rawequal', 'rawget', 'select', 'setmetatable',
  'tonumber', 'tostring', 'type', 'unpack', 'collectgarbage', '_VERSION',
}) do
  globals[name] = _G[name]
end
globals.string, globals.table, globals.redis = protected(string), protected(table), protected(redis)

-- The same numbers in every run of every script.
local seed = 0
local library = {}
for name, value in pairs(math) do
  library[name] = value
end
library.randomseed = function(value) seed = value % 2147483647 end
library.random = function(low, high)
  seed = (seed * 16807 + 12345) % 2147483647
  local share = seed / 2147483647
  if not low then
    return share
  end
  if not high then
    low, high = 1, low
  end
  return low + floor(share * (high - low + 1))
end
globals.math = protected(library)

setmetatable(globals, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local environment = protected(globals)
globals._G = environment

-- A chunk made by a script lives under the script's rules.
globals.loadstring = function(source, name)
  if type(source) == 'string' and find(source, '^\27') then
    error('ERR precompiled chunks are not allowed', 2)
  end
  local chunk, problem = loadstring(source, name)
  if chunk then
    setfenv(chunk, environment)
  end
  return chunk, problem
end

-- What `redis.call` raises is no Lua value until it is caught.
local function caught(what)
  if type(what) == 'userdata' then
    return raised()
  end
  if type(what) == 'table' and type(what.err) == 'string' then
    return what.err
  end
  return what
end

local function outcome(ok, ...)
  if ok then
    return true, ...
  end
  return false, caught((...))
end

globals.pcall = function(...)
  return outcome(pcall(...))
end

globals.xpcall = function(body, handler)
  return xpcall(body, function(what) return handler(caught(what)) end)
end

-- Runs where the error was raised, so that its line can still be told.
local function handler(what)
  local source, line = trace()
  if type(what) == 'userdata' then
    return {err = raised(), source = source, line = line}
  end
  if type(what) == 'table' then
    return {err = what.err, source = source, line = line}
  end
  return {err = 'ERR ' .. tostring(what), source = source, line = line}
end

local function run(script, call, pcall, keys, arguments)
  redis.call, redis.pcall, seed = call, pcall, 0
  globals.KEYS, globals.ARGV = keys, arguments
  return xpcall(script, handler)
end

return environment, run
