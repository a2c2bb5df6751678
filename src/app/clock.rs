//! The clock, and ids made from it. No other code on a request's way reads the wall clock.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use uuid::{Builder, Uuid};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_millis() as i64,
        Err(before) => -(before.duration().as_millis() as i64),
    }
}

/// A new id: a UUID of version 7. Ids sort by time, and those that one process makes within a millisecond in the order
/// of their making. The system is asked for randomness only once, since that costs a system call.
pub(super) fn new_id() -> String {
    static PROCESS: LazyLock<Uuid> = LazyLock::new(Uuid::now_v7);
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut random = [0; 10];
    random[..4].copy_from_slice(&ordered_bits(count));
    random[4..].copy_from_slice(&xxh3_64_with_seed(PROCESS.as_bytes(), u64::from(count)).to_be_bytes()[..6]);
    let now = u64::try_from(now_ms()).unwrap_or(0);
    Builder::from_unix_timestamp_millis(now, &random).into_uuid().to_string()
}

/// The lower 26 bits of a number, laid out after the time so that ids sort by them. UUIDs use the upper four bits of
/// the first byte for the version, and the upper two of the third for the variant.
fn ordered_bits(number: u32) -> [u8; 4] {
    let number = number & 0x03FF_FFFF;
    [(number >> 22) as u8, (number >> 14) as u8, ((number >> 8) & 0x3F) as u8, number as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_distinct_and_sort_by_creation() {
        let ids: Vec<String> = (0..20_000).map(|_| new_id()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
        assert_eq!(Uuid::parse_str(&ids[0]).unwrap().get_version_num(), 7);
    }

    #[test]
    fn sequence_numbers_keep_their_order_within_a_uuid() {
        let id = |number| {
            Builder::from_unix_timestamp_millis(7, &{
                let mut random = [0xFF; 10];
                random[..4].copy_from_slice(&ordered_bits(number));
                random
            })
        };
        for number in [0, 1, 0xFF, 0x100, 0x3FFF, 0x4000, 0x003F_FFFF, 0x0040_0000, 0x03FF_FFFE] {
            assert!(id(number).as_uuid() < id(number + 1).as_uuid(), "{number:#x}");
        }
    }
}
