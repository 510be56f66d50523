//! Lua in an embedded server: running a script, and turning values into answers and back as Redis does.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use super::commands::{Failure, execute_in_script};
use super::core::Core;
use super::data::Bytes;
use crate::fault::sha1;
use crate::wire::Answer;

/// What errors in scripts call the script.
const CHUNK: &str = "@user_script";

/// One Lua for all scripts of a server, with the compiled ones.
#[derive(Debug)]
pub(crate) struct Engine {
    lua: Lua,
    environment: Table,
    run: Function,
    format: Function,
    /// The text of what `redis.call` has raised last.
    raised: Arc<Mutex<String>>,
    compiled: HashMap<String, Function>,
}

/// A script and what it is run with.
#[derive(Debug)]
pub(crate) struct Script<'a> {
    pub(crate) sha: &'a str,
    pub(crate) source: &'a [u8],
    pub(crate) keys: &'a [Bytes],
    pub(crate) arguments: &'a [Bytes],
}

impl Engine {
    pub(crate) fn new() -> Self {
        // Nothing of this depends on input: a failure is a mistake in `prelude.lua` or a lack of memory.
        Self::build().expect("the Lua environment of the embedded server")
    }

    fn build() -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::default())?;
        let raised = Arc::new(Mutex::new(String::new()));
        let trace = lua.create_function(|lua, ()| Ok(innermost(lua)))?;
        let text = Arc::clone(&raised);
        let text = lua.create_function(move |_, ()| Ok(lock(&text).clone()))?;
        let sha1hex = lua.create_function(|_, text: mlua::LuaString| Ok(sha1(&text.as_bytes())))?;
        let format = lua.globals().get::<Table>("string")?.get("format")?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("@prelude");
        let (environment, run) = prelude.call((trace, text, sha1hex))?;
        Ok(Self { lua, environment, run, format, raised, compiled: HashMap::new() })
    }

    /// Forgets the compiled scripts.
    pub(crate) fn forget(&mut self) {
        self.compiled.clear();
    }

    /// Whether a script can be compiled.
    pub(crate) fn check(engine: Option<&mut Self>, source: &[u8]) -> Result<(), Failure> {
        engine.map_or(Ok(()), |engine| engine.compile(source).map(drop))
    }

    fn compile(&self, source: &[u8]) -> Result<Function, Failure> {
        let chunk = self.lua.load(without_flags(source)).set_name(CHUNK).set_mode(mlua::chunk::ChunkMode::Text);
        chunk.set_environment(self.environment.clone()).into_function().map_err(|error| {
            let text = match error {
                mlua::Error::SyntaxError { message, .. } => message,
                other => other.to_string(),
            };
            Failure(format!("ERR Error compiling script (new function): {text}").into())
        })
    }

    /// Runs a script to its end. Only a script that cannot be compiled is a failure.
    pub(crate) fn run(&mut self, core: &mut Core, client: u64, script: &Script<'_>) -> Result<Answer, Failure> {
        let function = match self.compiled.get(script.sha) {
            Some(function) => function.clone(),
            None => {
                let function = self.compile(script.source)?;
                self.compiled.insert(script.sha.to_owned(), function.clone());
                function
            }
        };
        let core = RefCell::new(core);
        let execute = |lua: &Lua, parts: MultiValue| match self.parts(parts) {
            Ok(parts) => to_lua(lua, execute_in_script(&mut core.borrow_mut(), client, &parts)),
            Err(failure) => to_lua(lua, failure.into()),
        };
        let result = self.lua.scope(|scope| {
            let call = scope.create_function(|lua, parts| {
                let answer = execute(lua, parts)?;
                match answer.as_table().and_then(|table| table.raw_get::<Option<String>>("err").transpose()) {
                    Some(text) => {
                        *lock(&self.raised) = text?;
                        Err(mlua::Error::runtime("raised by `redis.call`"))
                    }
                    None => Ok(answer),
                }
            })?;
            let pcall = scope.create_function(execute)?;
            let (keys, arguments) = (self.strings(script.keys)?, self.strings(script.arguments)?);
            self.run.call::<(bool, Value)>((function, call, pcall, keys, arguments))
        });
        Ok(match result {
            Ok((true, value)) => from_lua(&value),
            Ok((false, error)) => Answer::Error(raised(&error, script.sha)),
            Err(error) => Answer::Error(format!("ERR {error}")),
        })
    }

    /// The arguments of `redis.call` as a command.
    fn parts(&self, arguments: MultiValue) -> Result<Vec<Bytes>, Failure> {
        if arguments.is_empty() {
            return Err(Failure::of("ERR Please specify at least one argument for this redis lib call"));
        }
        let part = |argument: Value| match argument {
            Value::String(text) => Some(text.as_bytes().to_vec()),
            // Not the usual 14 digits.
            number @ (Value::Integer(_) | Value::Number(_)) => {
                self.format.call::<mlua::LuaString>(("%.17g", number)).ok().map(|text| text.as_bytes().to_vec())
            }
            _ => None,
        };
        arguments
            .into_iter()
            .map(part)
            .collect::<Option<_>>()
            .ok_or(Failure::of("ERR Lua redis lib command arguments must be strings or integers"))
    }

    fn strings(&self, strings: &[Bytes]) -> mlua::Result<Table> {
        let strings = strings.iter().map(|string| self.lua.create_string(string)).collect::<mlua::Result<Vec<_>>>()?;
        self.lua.create_sequence_from(strings)
    }
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Empties a first line as in `#!lua flags=no-writes`, and keeps the numbers of the others.
fn without_flags(source: &[u8]) -> &[u8] {
    match source.iter().position(|byte| *byte == b'\n') {
        Some(end) if source.starts_with(b"#!lua") => &source[end..],
        _ => source,
    }
}

/// Source and line of the innermost frame that belongs to the script.
fn innermost(lua: &Lua) -> (Option<String>, usize) {
    for level in 0.. {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source().source.map(|source| source.into_owned());
            (source, frame.current_line().unwrap_or(0))
        });
        match frame {
            Some((Some(source), line)) if source == CHUNK => return (Some(source), line),
            Some(_) => {}
            None => break,
        }
    }
    (None, 0)
}

/// The text of an error that nobody caught.
fn raised(error: &Value, sha: &str) -> String {
    let field = |name: &str| match error {
        Value::Table(table) => table.raw_get::<Value>(name).ok(),
        _ => None,
    };
    let text = |value: Option<Value>| match value {
        Some(Value::String(text)) => Some(text.to_string_lossy()),
        _ => None,
    };
    let message = text(field("err")).unwrap_or_else(|| "ERR unknown error".to_owned());
    match (text(field("source")), field("line")) {
        (Some(source), Some(Value::Integer(line))) => format!("{message} script: {sha}, on {source}:{line}."),
        _ => format!("{message} script: {sha}"),
    }
}

/// An answer as a script sees it.
fn to_lua(lua: &Lua, answer: Answer) -> mlua::Result<Value> {
    let field = |name: &str, text: &str| {
        let table = lua.create_table()?;
        table.raw_set(name, text)?;
        Ok(Value::Table(table))
    };
    let list = |parts: Vec<Answer>| {
        let parts = parts.into_iter().map(|part| to_lua(lua, part)).collect::<mlua::Result<Vec<_>>>()?;
        lua.create_sequence_from(parts).map(Value::Table)
    };
    match answer {
        Answer::Status(text) => field("ok", &text),
        Answer::Error(text) => field("err", &text),
        #[expect(clippy::cast_precision_loss, reason = "Lua has no other numbers")]
        Answer::Int(number) => Ok(Value::Number(number as f64)),
        Answer::Bulk(bytes) => lua.create_string(bytes).map(Value::String),
        Answer::Double(number) => lua.create_string(crate::wire::double(number)).map(Value::String),
        Answer::Nil | Answer::NilList => Ok(Value::Boolean(false)),
        Answer::List(parts) | Answer::Push(parts) | Answer::Many(parts) => list(parts),
        Answer::Map(pairs) => list(pairs.into_iter().flat_map(<[Answer; 2]>::from).collect()),
        Answer::Scored(members) => list(
            members.into_iter().flat_map(|(member, score)| [Answer::Bulk(member), Answer::Double(score)]).collect(),
        ),
    }
}

/// What a script returned, as an answer.
fn from_lua(value: &Value) -> Answer {
    match value {
        Value::String(text) => Answer::bulk(text.as_bytes()),
        Value::Integer(number) => Answer::Int(*number),
        Value::Number(number) => Answer::Int(truncated(*number)),
        Value::Boolean(true) => Answer::Int(1),
        Value::Table(table) => table_from_lua(table),
        _ => Answer::Nil,
    }
}

fn table_from_lua(table: &Table) -> Answer {
    let text = |name: &str| match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(text.to_string_lossy()),
        _ => None,
    };
    if let Some(error) = text("err") {
        return Answer::Error(error);
    }
    if let Some(status) = text("ok") {
        return Answer::Status(status.replace(['\r', '\n'], " ").into());
    }
    if let Ok(Value::Number(number)) = table.raw_get::<Value>("double") {
        return Answer::Double(number);
    }
    let elements = (1..).map(|at: i64| table.raw_get::<Value>(at).unwrap_or(Value::Nil));
    Answer::List(elements.take_while(|value| !value.is_nil()).map(|value| from_lua(&value)).collect())
}

/// Towards zero, and out of range as x86 does it, where most servers run.
fn truncated(number: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "that is the point")]
    if number > -9.3e18 && number < 9.2e18 { number as i64 } else { i64::MIN }
}
