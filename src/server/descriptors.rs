//! Raises the limit of open files for connections, each of which takes two: one on either side.
//!
//! The soft limit of open files is a default of the system (256 on some), which a process may raise up to the hard
//! limit. It is raised as far as needed and no further, because some programs that inherit it iterate over all
//! numbers below it. It is never lowered.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files reserved for everything else: the store, logs, full texts, idle upstream connections, admin connections.
const OTHER_FILES: u64 = 256;
/// Some systems refuse more than this whatever the hard limit says.
const ALWAYS_ALLOWED: u64 = 10_240;

/// Raises the limit of open files to what this many connections need, as far as the system allows. Returns how many of
/// them the limit suffices for.
pub fn raise_file_limit(connections: usize) -> usize {
    let needed = files_for(connections);
    let limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current.filter(|current| *current < needed) else { return connections };
    let wanted = limits.maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = [wanted, wanted.min(ALWAYS_ALLOWED)].into_iter().find(|soft| {
        let raised = Rlimit { current: Some(*soft), maximum: limits.maximum };
        *soft > current && setrlimit(Resource::Nofile, raised).is_ok()
    });
    connections_for(raised.unwrap_or(current)).min(connections)
}

fn files_for(connections: usize) -> u64 {
    (connections as u64).saturating_mul(2).saturating_add(OTHER_FILES)
}

/// The number of connections that this many open files suffice for.
fn connections_for(files: u64) -> usize {
    // If the limit is small, at most a quarter of it is reserved for other files.
    let others = OTHER_FILES.min(files / 4);
    ((files - others) / 2).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_room_matches_the_descriptors_needed() {
        for (files, expected) in
            [(0, 1), (3, 1), (64, 24), (256, 96), (1024, 384), (2304, 1024), (1_000_000, 499_872)]
        {
            assert_eq!(connections_for(files), expected, "{files}");
        }
        for connections in [512, 1024, 5000, 1_000_000] {
            assert_eq!(connections_for(files_for(connections)), connections);
        }
        assert_eq!(files_for(usize::MAX), u64::MAX);
    }

    #[test]
    fn the_descriptor_limit_is_raised_up_to_the_hard_limit() {
        let hard = getrlimit(Resource::Nofile).maximum;
        let made = raise_file_limit(1024);
        let soft = getrlimit(Resource::Nofile).current;
        let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= files_for(1024));
        assert_eq!((made == 1024, enough(soft)), (enough(hard), enough(hard)), "{soft:?} {hard:?}");
        // A limit that is already higher is not lowered.
        assert_eq!(raise_file_limit(1), 1);
        assert_eq!(getrlimit(Resource::Nofile).current, soft);
    }
}
