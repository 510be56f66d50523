//! What a server is asked as one of several that decide by majority; see `Redlock`.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisWrite, Value};

use super::replies::{foreign, garbled, number, occupant, text};
use super::scripts::{BOOTSTRAP, Form, HEAL, REMEMBERS, VOTE};
use super::{ACQUIRE_KEYS, RedisStore, line, millis};
use crate::error::Occupant;
use crate::key::Names;
use crate::store::{Description, StoreError, Token, Waiting};

/// What one round of votes is about.
#[derive(Debug)]
pub(crate) struct Motion {
    pub(crate) names: Arc<Names>,
    pub(crate) token: Token,
    pub(crate) expiry: Duration,
    pub(crate) holder: Description,
    /// How many fencing numbers to reserve.
    pub(crate) reserve: u32,
    /// This client's token before, given up: what it left behind does not stand in the way.
    pub(crate) previous: Option<Token>,
    pub(crate) memory: Memory,
    /// How the process is found in a line, where it is told that a key is free.
    pub(crate) waiter: Token,
    pub(crate) wait: Option<Waiting>,
}

/// How a server's loss of its memory is noticed.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    /// The key that says since when a server remembers, and in which run of it.
    pub(crate) epoch: Arc<str>,
    /// How long a server abstains that has lost its memory.
    pub(crate) quarantine: Option<Duration>,
}

/// What a server remembers of what it granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remembers {
    All,
    /// It is new, or has lost everything.
    Nothing,
    /// It was in use before its last start.
    PerhapsLess,
}

/// What one server says.
#[derive(Clone, Debug)]
pub(crate) enum Vote {
    Granted,
    Held {
        /// Which key, in the sorted order.
        place: usize,
        occupant: Occupant,
        /// Tells holders apart: the first characters of the value.
        owner: Box<str>,
    },
    /// The keys are free, but the number is not above all that were accepted before; this one would be.
    Stale {
        next: u64,
    },
    /// It has lost its memory and does not vote for so long.
    Abstains {
        left: Duration,
    },
    /// The token was buried.
    Dead,
    /// Something that is not a lock stands under a key's name.
    Foreign {
        place: usize,
        what: &'static str,
    },
}

/// A lease to put on a server that lacks it.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) motion: Arc<Motion>,
    /// Which key, in the sorted order.
    pub(crate) place: usize,
    pub(crate) expiry: Duration,
    pub(crate) number: u64,
}

impl RedisStore {
    /// One server's vote on a motion, under a proposed fencing number.
    pub(crate) async fn vote(&self, motion: &Motion, proposed: u64, limit: Duration) -> Result<Vote, StoreError> {
        let token = motion.token.as_str();
        let channel = self.front.channel();
        let value = VOTE
            .run(&self.front, Form::Known, limit, motion.names.len() * ACQUIRE_KEYS + 1, |command: &mut Cmd| {
                for name in motion.names.iter() {
                    line(command, name);
                    command.write_arg_fmt(name.gone(token));
                    command.arg(&*name.fence);
                }
                command.arg(&*motion.memory.epoch).arg(token).arg(millis(motion.expiry));
                command.write_arg_fmt(&motion.holder);
                command.arg(proposed).arg(motion.reserve);
                command.arg(motion.previous.as_ref().map_or("", Token::as_str)).arg(motion.memory.abstains());
                let life = motion.wait.map_or(0, |wait| millis(wait.life));
                let ticket = motion.wait.and_then(|wait| wait.ticket).unwrap_or_default();
                command.arg(motion.waiter.as_str()).arg(life).arg(ticket).arg(&*channel);
            })
            .await?;
        vote(&value, motion.names.len()).ok_or_else(|| garbled("vote"))
    }

    /// Puts leases where they are missing. `true` for each that stands now.
    pub(crate) async fn heal(&self, missing: &[Missing], limit: Duration) -> Result<Vec<bool>, StoreError> {
        let Some(memory) = missing.first().map(|missing| &missing.motion.memory) else { return Ok(Vec::new()) };
        let value = HEAL
            .run(&self.back, Form::Known, limit, missing.len() * 3 + 1, |command: &mut Cmd| {
                for Missing { motion, place, .. } in missing {
                    let name = motion.names.at(*place);
                    command.arg(&*name.wire);
                    command.write_arg_fmt(name.gone(motion.token.as_str()));
                    command.arg(&*name.fence);
                }
                command.arg(&*memory.epoch);
                for Missing { motion, expiry, number, .. } in missing {
                    command.arg(motion.token.as_str()).arg(millis(*expiry));
                    command.write_arg_fmt(&motion.holder);
                    command.arg(*number).arg(number.saturating_add(u64::from(motion.reserve)).saturating_sub(1));
                }
                command.arg(memory.abstains());
            })
            .await?;
        let Value::Array(answers) = value else { return Err(garbled("heal")) };
        Ok(answers.iter().map(|answer| matches!(answer, Value::Int(1))).collect())
    }

    /// Whether the server remembers what it granted.
    pub(crate) async fn remembers(&self, memory: &Memory, limit: Duration) -> Result<Remembers, StoreError> {
        let value = REMEMBERS
            .run(&self.front, Form::Known, limit, 1, |command: &mut Cmd| {
                command.arg(&*memory.epoch).arg(memory.abstains());
            })
            .await?;
        Ok(match value {
            Value::Int(1) => Remembers::All,
            Value::Int(0) => Remembers::Nothing,
            _ => Remembers::PerhapsLess,
        })
    }

    /// Has the server remember from now on, so that it votes at once.
    pub(crate) async fn bootstrap(&self, memory: &Memory, limit: Duration) -> Result<(), StoreError> {
        let told = BOOTSTRAP.run(&self.front, Form::Known, limit, 1, |command: &mut Cmd| {
            command.arg(&*memory.epoch).arg(memory.abstains());
        });
        told.await.map(drop)
    }
}

impl Memory {
    fn abstains(&self) -> u64 {
        self.quarantine.map_or(0, millis)
    }
}

fn vote(value: &Value, keys: usize) -> Option<Vote> {
    let parts = match value {
        Value::Int(1) => return Some(Vote::Granted),
        Value::Array(parts) => parts,
        _ => return None,
    };
    let place = || match *parts.get(1)? {
        Value::Int(place) => usize::try_from(place).ok().filter(|place| *place < keys),
        _ => None,
    };
    match text(parts.first()?)? {
        "held" => {
            let Value::Int(left) = *parts.get(2)? else { return None };
            // A foreign client's value may be any bytes; it still holds the key.
            let value = text(parts.get(3)?).unwrap_or_default();
            let occupant = occupant(value, u64::try_from(left).ok()?, number(parts.get(4)?)?);
            Some(Vote::Held { place: place()?, occupant, owner: value.chars().take(36).collect() })
        }
        "stale" => Some(Vote::Stale { next: number(parts.get(1)?)? }),
        "abstains" => {
            let Value::Int(left) = *parts.get(1)? else { return None };
            Some(Vote::Abstains { left: Duration::from_millis(u64::try_from(left).ok()?) })
        }
        "dead" => Some(Vote::Dead),
        "foreign" => Some(Vote::Foreign { place: place()?, what: foreign(text(parts.get(2)?)?) }),
        _ => None,
    }
}
