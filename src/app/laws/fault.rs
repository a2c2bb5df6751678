//! A fault of the gateway while it books costs the record of one request, and is counted.

use std::sync::Arc;
use std::time::Instant;

use super::faulty::Faulty;
use super::rig::{Rig, clock, policy, prices};
use crate::app::books::Ended;
use crate::ledger::Record;
use crate::store::ledger::{Books, FILE_NAME};
use crate::store::{LedgerEntry, LedgerFilter, Order, Store};

#[test]
fn records_lost_to_store_faults_are_counted() {
    let rig = Rig::new();
    let store = rig.store(FILE_NAME);
    for (failure, lost) in [(0, 0), (6, 1), (0, 1)] {
        let faulty = Arc::new(Faulty::new(Arc::clone(&store)));
        let gateway = rig.core(Arc::clone(&faulty) as Arc<dyn Store>, policy(0), prices(0));
        faulty.fail(failure);
        gateway.books.ended(ended());
        // This waits until everything is booked.
        drop(gateway);
        assert_eq!(store.lost(), lost, "{failure}");
    }
    drop(store);
    let (mut booked, all) = (0, LedgerFilter::default());
    let count = &mut |_: LedgerEntry<'_>| booked += 1;
    let missing = Books::read(&rig.path(FILE_NAME), all, Order::OldestFirst, count).unwrap();
    assert_eq!((booked, missing), (2, 1));
}

fn ended() -> Ended {
    let record = Box::new(Record { id: uuid::Uuid::now_v7().to_string(), ..Record::default() });
    let (usage, slot, continues) = (None, None, None);
    Ended {
        record,
        at_ms: clock(),
        sent_at: Instant::now(),
        answered_at: None,
        usage,
        vendor: None,
        window: None,
        slot,
        continues,
        grows: false,
        unbound: 0,
        asked_again: false,
    }
}
