//! The threads that flush and compact. RocksDB has two pools of them for all stores of a process together, with one thread each
//! unless told otherwise: many stores wait for each other then, also where CPUs have nothing to do.

use std::thread::available_parallelism;

use rocksdb::Env;

use super::error;
use crate::KvError;

/// Each pool gets a thread for each of so many stores, but for no more than half of the CPUs that this process may use. Each
/// store has one flush and one compaction under way at most, however many threads there are.
///
/// # Errors
/// Where RocksDB gives no environment.
pub fn share_threads(stores: usize) -> Result<(), KvError> {
    let cpus = available_parallelism().map_or(1, usize::from);
    let each = i32::try_from(of_pool(stores, cpus)).unwrap_or(1);
    let mut env = Env::new().map_err(error::from_rocksdb)?;
    env.set_high_priority_background_threads(each);
    env.set_low_priority_background_threads(each);
    Ok(())
}

/// Half of the CPUs: those who are asked something have the other half at least, since a thread of a pool mostly waits for the
/// disk, or for work.
fn of_pool(stores: usize, cpus: usize) -> usize {
    stores.min(cpus / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_threads_than_stores_and_half_the_cpus() {
        let pools = [(1, 64), (16, 1), (16, 4), (16, 64), (64, 16), (0, 8)].map(|(stores, cpus)| of_pool(stores, cpus));
        assert_eq!(pools, [1, 1, 2, 16, 8, 1]);
    }
}
