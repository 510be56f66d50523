//! Where the processes run: the server on one core, the clients on the others, so that they do not share one.

use std::time::Duration;

use crate::Result;

/// Who runs on which core.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    /// `None` where there is one core, or no way to pin.
    pub(crate) server: Option<usize>,
    pub(crate) clients: Vec<usize>,
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::process::Pid;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::Cores;
    use crate::Result;

    impl Cores {
        /// Of the cores that this process may use, the first is the server's.
        pub(crate) fn find() -> Self {
            let allowed = sched_getaffinity(None).ok();
            let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_some_and(|set| set.is_set(*core)));
            let server = cores.next();
            let clients: Vec<_> = cores.collect();
            Self { server: server.filter(|_| !clients.is_empty()), clients }
        }

        /// Puts this thread, and whatever it starts from now on, on the clients' cores.
        pub(crate) fn pin_clients(&self) -> Result<()> {
            if self.server.is_some() {
                sched_setaffinity(None, &set(&self.clients))?;
            }
            Ok(())
        }

        /// Lets this thread, and whatever it starts from now on, run on all of them.
        pub(crate) fn unpin(&self) -> Result<()> {
            if let Some(server) = self.server {
                let all: Vec<_> = self.clients.iter().copied().chain([server]).collect();
                sched_setaffinity(None, &set(&all))?;
            }
            Ok(())
        }

        /// Puts a process on the server's core.
        pub(crate) fn pin_server(&self, pid: u32) -> Result<()> {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            if let (Some(core), Some(pid)) = (self.server, pid) {
                sched_setaffinity(Some(pid), &set(&[core]))?;
            }
            Ok(())
        }
    }

    fn set(cores: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        for core in cores {
            set.set(*core);
        }
        set
    }
}

#[cfg(not(target_os = "linux"))]
impl Cores {
    pub(crate) fn find() -> Self {
        Self { server: None, clients: Vec::new() }
    }

    pub(crate) fn pin_clients(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn unpin(&self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn pin_server(&self, _pid: u32) -> Result<()> {
        Ok(())
    }
}

/// How busy the machine is with whatever else runs on it: the load averages, as `uptime` has them.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<_> = text.split(' ').take(3).collect();
    if averages.len() == 3 { averages.join(" ") } else { "not known".to_owned() }
}

/// The CPU time of all children of this process that have ended, and of theirs.
pub(crate) fn children_cpu_time() -> Result<Duration> {
    // After the name in parentheses, which may hold spaces: state is field 3, cutime and cstime are 16 and 17. The system
    // counts in hundredths of a second.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|field| field.parse::<u64>().ok());
    match (ticks(16), ticks(17)) {
        (Some(user), Some(system)) => Ok(Duration::from_millis((user + system) * 10)),
        _ => Err("`/proc/self/stat` cannot be read".into()),
    }
}

/// The time that a process has had a core so far, all its threads together: what is left of a figure on a busy machine.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let mut nanos = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(Duration::from_nanos(nanos))
}

/// What of this process is in memory, in bytes.
pub(crate) fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|number| number.trim().parse().ok());
    kilobytes.map(|kilobytes: u64| kilobytes * 1024).ok_or_else(|| "`/proc/self/status` cannot be read".into())
}
