//! Stores that are new, older, newer or not stores at all, and the settings of a connection.

use super::*;

#[test]
fn a_file_that_is_no_database_is_an_error() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path().parent().unwrap()).unwrap();
    std::fs::write(bench.path(), "this is not a database, and it is longer than a header of one would be")
        .unwrap();
    let error = bench.try_open().err().unwrap();
    assert!(matches!(error, StoreError::Database(_)) && error.hint() == NO_DATABASE, "{error}");
}

/// Overwrites the tables of threads.
fn damage(bench: &Bench) {
    use std::os::unix::fs::FileExt as _;
    let page = "SELECT rootpage FROM sqlite_master WHERE name = 'threads'";
    let page: u64 = bench.database().query_row(page, [], |row| row.get(0)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(bench.path()).unwrap();
    file.write_all_at(&[0xa5; 8192], (page - 1) * 8192).unwrap();
}

#[test]
fn a_damaged_page_is_found_when_opening() {
    let bench = Bench::new();
    drop(bench.open());
    damage(&bench);
    let error = bench.try_open().err().unwrap();
    assert_eq!(
        (error.to_string().as_str(), error.hint()),
        ("database: database disk image is malformed", NO_DATABASE)
    );
}

/// Damage that occurs later is reported once, as an error, and every failed read is counted.
#[test]
fn later_damage_is_logged_once_and_failed_reads_are_counted() {
    let bench = Bench::new();
    drop(bench.open());
    let store = bench.open();
    damage(&bench);
    let log = logged(tracing::Level::WARN, || {
        for _ in 0..3 {
            assert!(store.thread("t").is_err());
        }
        assert!(store.decisions(&[chain("m")]).is_ok(), "what is whole is read");
    });
    assert_eq!(log.lines().count(), 1, "{log}");
    let said = format!("ERROR plimsoll::store::health: the database {} is damaged", bench.path().display());
    assert!(log.contains(&said) && log.contains("; hint: stop the gateway"), "{log}");
    assert_eq!(store.failed_reads(), 3);
}

#[test]
fn other_failed_reads_are_logged_at_every_doubling() {
    let health = health::Health::of(Path::new("db"));
    let log = logged(tracing::Level::WARN, || {
        (0..9).for_each(|_| assert!(health.note(Err::<(), _>(StoreError::Damaged)).is_err()));
        health.note(Ok(())).unwrap();
    });
    let told = log.lines().map(|line| line.rsplit_once('=').unwrap().1);
    assert_eq!((told.collect::<Vec<_>>(), health.failed()), (vec!["1", "2", "4", "8"], 9), "{log}");
}

#[test]
fn errors_of_opening_have_hints() {
    let file = |kind: ErrorKind| StoreError::File(kind.into());
    let database = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None).into();
    for (error, expected) in [
        (file(ErrorKind::PermissionDenied), UNWRITABLE),
        (file(ErrorKind::ReadOnlyFilesystem), UNWRITABLE),
        (file(ErrorKind::StorageFull), FULL),
        (file(ErrorKind::FileTooLarge), UNWRITTEN),
        (file(ErrorKind::NotFound), ""),
        (database(rusqlite::ffi::SQLITE_READONLY), UNWRITABLE),
        (database(rusqlite::ffi::SQLITE_CANTOPEN), UNWRITABLE),
        (database(rusqlite::ffi::SQLITE_FULL), FULL),
        (database(rusqlite::ffi::SQLITE_IOERR_SHMSIZE), UNWRITTEN),
        (database(rusqlite::ffi::SQLITE_IOERR_WRITE), UNWRITTEN),
        (database(rusqlite::ffi::SQLITE_IOERR_READ), ""),
        (database(rusqlite::ffi::SQLITE_CORRUPT), NO_DATABASE),
        (database(rusqlite::ffi::SQLITE_BUSY), LOCKED),
        (database(rusqlite::ffi::SQLITE_LOCKED), LOCKED),
        (StoreError::Newer, ""),
    ] {
        assert_eq!(error.hint(), expected, "{error:?}");
    }
}

/// Existing pages can be read, but there is no room to write.
#[test]
fn a_read_only_store_is_refused() {
    let bench = Bench::new();
    drop(bench.open());
    let connection = bench.database();
    for (can_write, expected) in [(true, Some(schema::VERSION)), (false, None)] {
        connection.pragma_update(None, "query_only", !can_write).unwrap();
        assert_eq!(schema::prepare(&connection).ok(), expected, "{can_write}");
    }
}

/// A store that another gateway is writing to is waited for no longer than usual; the lock proves that it is writable.
#[test]
fn a_store_locked_for_writing_can_be_opened() {
    let bench = Bench::new();
    drop(bench.open());
    let (writes, connection) = (bench.database(), bench.database());
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    writes.execute_batch("BEGIN IMMEDIATE").unwrap();
    connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert_eq!(schema::write_again(&connection).unwrap(), schema::VERSION);
    let begun = std::time::Instant::now();
    drop(bench.open());
    assert!(begun.elapsed() < schema::PATIENCE);
}

/// Until another process lets it write, a gateway logs nothing of what others have left; it can still be stopped.
#[test]
fn unlogged_records_wait_for_the_next_start_if_the_store_is_locked() {
    let row = LedgerRow { id: "a1".to_owned(), conversation: "a".to_owned(), ..LedgerRow::default() };
    let row = LedgerRow { record: "{}".to_owned(), line: "line".to_owned(), ..row };
    for (name, is_noted) in [("it waits", false), ("it is noted by a killed gateway", true)] {
        let bench = Bench::new();
        let logs = bench.home.path().join("logs");
        drop(bench.open());
        let writes = bench.database();
        if is_noted {
            let mut killed = underway::Underway::open(&bench.path(), &writes, &logs, &|| true);
            killed.note(&logs, std::iter::once(&row));
            let stored = "INSERT INTO ledger (id, at_ms, conversation, record) VALUES ('a1', 0, 'a', '{}')";
            writes.execute_batch(stored).unwrap();
        } else {
            unlogged::put(&writes, std::iter::once(&row)).unwrap();
        }
        writes.execute_batch("BEGIN IMMEDIATE").unwrap();
        let begun = std::time::Instant::now();
        drop(bench.open());
        assert!(begun.elapsed() < schema::PATIENCE, "{name}");
        assert!(!logs.exists(), "{name}");
        writes.execute_batch("ROLLBACK").unwrap();
        drop(bench.open());
        assert_eq!(std::fs::read_to_string(logs.join(logs::file_name("a"))).unwrap(), "line\n", "{name}");
    }
}

/// A store that cannot even be read is waited for, and this is logged at once.
#[test]
fn waiting_for_a_locked_store_is_logged() {
    let bench = Bench::new();
    drop(bench.open());
    let locks = bench.database();
    locks.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT").unwrap();
    let said =
        "WARN plimsoll::store::schema: the store is locked by another process; waiting for it at_most=10s";
    let log = logged(tracing::Level::WARN, || {
        schema::tell_of_lock(&bench.database()).unwrap();
    });
    assert!(log.contains(said), "{log}");
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    let bench = Bench::new();
    drop(bench.open());
    bench.database().execute_batch("PRAGMA user_version = 4").unwrap();
    assert!(matches!(bench.try_open().err(), Some(StoreError::Newer)));
    bench.database().execute_batch("PRAGMA user_version = 1").unwrap();
    assert!(bench.try_open().is_ok());
}

/// A store of the first version gets the tables that it lacks, and keeps its contents.
#[test]
fn a_store_of_an_older_version_is_migrated() {
    let bench = Bench::new();
    wait(bench.open().commit(decided(vec![stored("m", 0, "m", "kept")], 1))).unwrap();
    bench
        .database()
        .execute_batch("DROP TABLE splices; DROP TABLE missing; PRAGMA user_version = 1")
        .unwrap();
    let store = bench.open();
    assert_eq!(store.splices(&[chain("m")]).unwrap(), []);
    assert_eq!(store.decisions(&[chain("m")]).unwrap(), [stored("m", 0, "m", "kept")]);
    wait(store.commit(Batch { splices: vec![spliced("m", "n", "text")], ..Batch::default() })).unwrap();
    drop(store);
    // These tables were added without a new version, so that gateways without them can continue with stores that have
    // them.
    let uses = "DROP TABLE uses; DROP TABLE refusals; DROP TABLE windows; DROP TABLE lacking;
                DROP INDEX decisions_by_replacement";
    bench.database().execute_batch(uses).unwrap();
    let store = bench.open();
    let used = Used { thread: "t".to_owned(), chains: vec![chain("m")] };
    wait(store.commit(Batch { used: Some(used), ..Batch::default() })).unwrap();
    let aside = Thread { observe: true, refused: Some(chain("m")), ..thread("t", "m", 1) };
    wait(store.commit(Batch { threads: vec![aside.clone()], ..Batch::default() })).unwrap();
    assert_eq!(store.thread("t").unwrap(), Some(aside));
    assert_eq!((store.windows(0).unwrap(), store.lacking(Digest::of(&[]), 0).unwrap()), (vec![], None));
    let version: i64 = bench.database().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 3);
}

/// Gateways that start at the same time on a new file all open it.
#[test]
fn gateways_starting_at_once_all_open_a_new_store() {
    for _ in 0..5 {
        let bench = Bench::new();
        let opened: Vec<_> = std::thread::scope(|scope| {
            let openers: Vec<_> = (0..6).map(|_| scope.spawn(|| bench.try_open())).collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        for (at, store) in opened.iter().enumerate() {
            let store = store.as_ref().unwrap_or_else(|error| panic!("{at}: {error}"));
            let name = at.to_string();
            wait(store.commit(decided(vec![stored(&name, 0, &name, "x")], 1))).unwrap();
        }
        let last = opened.last().unwrap().as_ref().unwrap();
        let all = (0..6).all(|at| last.decisions(&[chain(&at.to_string())]).unwrap().len() == 1);
        assert!(all);
    }
}

#[test]
fn store_files_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let bench = Bench::new();
    drop(bench.open());
    assert_eq!(mode(bench.path().parent().unwrap()), 0o700);

    // The folder was created by somebody else.
    let bench = Bench::new();
    let path = bench.path();
    let dir = path.parent().unwrap();
    std::fs::create_dir(dir).unwrap();
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    let store = bench.open();
    wait(store.commit(decided(vec![stored("a", 0, "a", "x")], 1))).unwrap();
    let files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// A statement that runs for every result of a history is prepared once.
#[test]
fn statements_are_not_reprepared_for_other_values() {
    let bench = Bench::new();
    wait(bench.open().commit(decided(vec![stored("m", 1, "m", "short")], 5))).unwrap();
    let connection = bench.database();
    schema::tune(&connection).unwrap();
    let mut statement =
        connection.prepare(&format!("{} {}", sqlite::DECISIONS, sqlite::NEWEST_OF_PART)).unwrap();
    for (root, found) in [("root", true), ("other", false), ("root", true)] {
        let key = decision("", Some("call")).key.unwrap();
        let mut rows = statement.query([chain(root).0.0, key.0.0]).unwrap();
        assert_eq!(rows.next().unwrap().is_some(), found, "{root}");
    }
    assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
}
