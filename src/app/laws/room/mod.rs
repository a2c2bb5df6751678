//! The same laws with little room: the ladder is on, and summaries get ready in the background while agents continue,
//! go back, retry and edit their histories, and gateways restart.

mod settings;
mod view;
mod wait;
mod witness;
mod world;

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::sample::Index;

use super::client::{Event, Script, Way, outputs, scripts_of};
use super::keys;
use super::rig::{self, Rig};
use crate::protocol::conformance::{Subject, for_all};
use crate::strategy::ladder::Rung;

use settings::{Wants, wants};
use world::{Past, Tally, World};

/// Something that happens.
#[derive(Debug, Clone)]
enum Moment {
    /// To an agent or a gateway.
    Usual(Event),
    /// One of the summaries being written is ready.
    Ready(Index),
    /// A finished summary is filed under another thread's name.
    Misfiled(Index, Index),
    /// A client edits its history.
    Edited(Index, Way),
}

/// The scripts of two agents, the settings that gateways may have, whether summaries are written at once, and what
/// happens.
type Life = ([Script; 2], Vec<Wants>, bool, Vec<Moment>);

/// The number of sets of settings.
const WISHES: usize = 4;

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let way = || prop_oneof![6 => Just(Way::Through(0)), 2 => Just(Way::Through(1)), 1 => Just(Way::Bypass)];
    let (index, wishes) = (any::<Index>, 0..WISHES as u8);
    let moment = prop_oneof![
        24 => way().prop_map(|way| Moment::Usual(Event::Next(way))),
        2 => way().prop_map(|way| Moment::Usual(Event::Retry(way))),
        3 => (index(), 0_u8..3).prop_map(|(at, script)| Moment::Usual(Event::Rewind(at, script))),
        1 => (index(), way()).prop_map(|(from, way)| Moment::Usual(Event::Compact(from, way))),
        1 => ("[a-z]{1,9}", way()).prop_map(|(text, way)| Moment::Usual(Event::Interrupt(text, way))),
        2 => (0_u8..2, wishes).prop_map(|(gateway, wants)| Moment::Usual(Event::Restart(gateway, wants))),
        1 => Just(Moment::Usual(Event::Switch)),
        1 => (1_u8..120).prop_map(|minutes| Moment::Usual(Event::Pause(minutes))),
        14 => index().prop_map(Moment::Ready),
        2 => (index(), index()).prop_map(|(of, to)| Moment::Misfiled(of, to)),
        2 => (index(), way()).prop_map(|(at, way)| Moment::Edited(at, way)),
    ];
    prop::collection::vec(moment, 8..40)
}

/// Results, some of which fill windows.
fn results() -> impl Strategy<Value = String> + Clone {
    let large = (40_usize..220, "[a-z ]{20,50}").prop_map(|(count, text)| {
        (0..count).map(|at| format!("{at} {text} {}\n", at * 7)).collect::<Vec<_>>().concat()
    });
    prop_oneof![4 => outputs(), 1 => large]
}

/// Agents with more to say than there are moments to say it in: each conversation continues with the next. Some of
/// their calls are long.
fn long_scripts() -> impl Strategy<Value = Script> {
    (scripts_of(results()), 1_usize..9).prop_map(|(mut script, every)| {
        let steps = script.talks.iter_mut().flat_map(|talk| &mut talk.turns).flat_map(|turn| &mut turn.steps);
        for call in steps.flat_map(|step| &mut step.calls).skip(1).step_by(every) {
            call.argument = vec![format!("{} and so on", call.argument); 120].join("\n");
        }
        let turns: Vec<_> = script.talks.iter().map(|talk| talk.turns.clone()).collect();
        for (at, talk) in script.talks.iter_mut().enumerate() {
            let others = turns[at + 1..].iter().chain(&turns[..at]);
            talk.turns.extend(others.flatten().cloned());
        }
        script
    })
}

fn pairs() -> impl Strategy<Value = [Script; 2]> {
    (long_scripts(), long_scripts()).prop_map(<[Script; 2]>::from)
}

/// Agents with these settings of the gateways; `at_once` is the probability that summaries are ready at once.
fn lives_of(wants: impl Strategy<Value = Wants>, at_once: f64) -> impl Strategy<Value = Life> {
    let wants = prop::collection::vec(wants, WISHES);
    (pairs(), wants, prop::bool::weighted(at_once), moments())
}

fn lives(_: &'static dyn Subject) -> BoxedStrategy<Life> {
    lives_of(wants(), 0.6).boxed()
}

/// Plays lives until the rare events have occurred, a few times at most: a law that was never put to the test is not
/// proved.
fn play(mut lives: impl FnMut(), has_come_to_pass: impl Fn() -> bool) {
    for _ in 0..6 {
        lives();
        if has_come_to_pass() {
            return;
        }
    }
}

/// Whatever agents and gateways do, and whenever a summary is ready: between events what is sent only grows, every
/// request is valid, no summary occurs in a conversation other than the one it was made of, and where room can be made
/// there is room.
#[test]
fn law_07_append_only_with_little_room() {
    let (rig, key, tally) = (Rig::new(), keys(), RefCell::new(Tally::default()));
    let stores = rig.two_stores("laws.db");
    let law = |subject, (scripts, wants, at_once, moments): Life| {
        rig::set_clock(0);
        let past = Past::new(subject, key(), &scripts);
        let mut world = World::new(&rig, &stores, subject, &wants, past);
        world.at_once = at_once;
        world.live(&moments)?;
        tally.borrow_mut().add(&world.tally);
        Ok(())
    };
    let rungs = [Rung::Clear, Rung::Arguments, Rung::Turns, Rung::Messages, Rung::Cut];
    let is_rare = |tally: &Tally, rung| tally.rungs.get(&rung).is_none_or(|count| *count < 3);
    let is_telling = |tally: &Tally| tally.ready >= 3 && !rungs.iter().any(|rung| is_rare(tally, *rung));
    play(|| for_all(16, lives, law), || is_telling(&tally.borrow()));
    let tally = tally.into_inner();
    assert!(is_telling(&tally), "hardly a summary, or an event of some rung: {tally:?}");
}

/// A fresh gateway on a copy of the store sends the same bytes, summaries included.
#[test]
fn law_04_determinism_with_little_room() {
    let (rig, key, used) = (Rig::new(), keys(), std::cell::Cell::new(0));
    // Most have so little room that they depend on summaries.
    let wants = || prop_oneof![4 => wants().prop_map(Wants::narrow), 1 => wants()];
    let strategy = |_| (lives_of(wants(), 0.8), any::<Index>()).boxed();
    let law = |subject, ((scripts, wants, at_once, moments), half): (Life, Index)| {
        rig::set_clock(0);
        let key = key();
        let (first, second) = (format!("{key}.db"), format!("{key}-copy.db"));
        let (before, after) = moments.split_at(half.index(moments.len() + 1));
        let mut past = Past::new(subject, key, &scripts);
        {
            let stores = rig.two_stores(&first);
            let mut world = World::new(&rig, &stores, subject, &wants, past);
            world.at_once = at_once;
            world.live(before)?;
            past = world.life;
        }
        rig.copy(&first, &second);
        let now = rig::clock();
        let live = |file: &str| -> Result<_, TestCaseError> {
            rig::set_clock(now);
            let stores = rig.two_stores(file);
            let mut world = World::new(&rig, &stores, subject, &wants, past.clone());
            world.at_once = at_once;
            world.live(after)?;
            used.set(used.get() + world.tally.used);
            Ok(world.life.wire)
        };
        prop_assert_eq!(live(&first)?, live(&second)?);
        rig.remove(&first);
        rig.remove(&second);
        Ok(())
    };
    play(|| for_all(8, strategy, law), || used.get() >= 1);
    assert!(used.get() >= 1, "hardly a summary was there: {used:?}");
}

/// How a conversation comes to differ from the one that summaries were made of.
#[derive(Debug, Clone)]
enum Branch {
    /// It continues from an earlier request with other words.
    Other(Index, u8),
    /// Something is inserted in the middle, and everything else is the same.
    Within(Index),
    /// It begins with a summary of the client's own.
    Compacted(Index),
    /// Somebody else says exactly the same.
    Stranger,
    /// It does not differ.
    Same,
}

/// Scripts, settings, how many requests are made before others branch off, the branches with the number of their
/// requests, and which summary is misfiled.
type Trunk = ([Script; 2], Vec<Wants>, usize, Vec<(Branch, usize)>, Index);

fn branches() -> impl Strategy<Value = Branch> {
    prop_oneof![
        3 => (any::<Index>(), 0_u8..3).prop_map(|(at, script)| Branch::Other(at, script)),
        3 => any::<Index>().prop_map(Branch::Within),
        1 => any::<Index>().prop_map(Branch::Compacted),
        1 => Just(Branch::Stranger),
        2 => Just(Branch::Same),
    ]
}

/// A conversation with summaries of all its lengths, and others that begin like it: whatever name a summary is stored
/// under, it only occurs in histories that begin with everything that it was made of.
#[test]
fn summaries_occur_only_in_histories_they_were_made_of() {
    let (rig, key, tally) = (Rig::new(), keys(), RefCell::new(Tally::default()));
    let stores = rig.two_stores("laws.db");
    let wants = || prop::collection::vec(wants(), WISHES);
    let branches = || prop::collection::vec((branches(), 1_usize..5), 1..5);
    let strategy = |_| (pairs(), wants(), 2_usize..14, branches(), any::<Index>()).boxed();
    let law = |subject, (scripts, wants, requests, branches, which): Trunk| {
        rig::set_clock(0);
        let mut world = World::new(&rig, &stores, subject, &wants, Past::new(subject, key(), &scripts));
        world.at_once = true;
        for _ in 0..requests {
            world.go_on()?;
        }
        let trunk = world.life.clone();
        for (at, (branch, more)) in branches.iter().enumerate() {
            world.life.clients.clone_from(&trunk.clients);
            let stranger = matches!(branch, Branch::Stranger).then(|| world.life.clone());
            world.branch(branch, at);
            for step in 0..*more {
                world.go_on()?;
                world.misfile(which, step);
            }
            if let Some(life) = stranger {
                world.life = life;
            }
        }
        tally.borrow_mut().add(&world.tally);
        Ok(())
    };
    let is_telling = |tally: &Tally| tally.used >= 2 && tally.tempted >= 5;
    play(|| for_all(12, strategy, law), || is_telling(&tally.borrow()));
    let tally = tally.into_inner();
    assert!(is_telling(&tally), "hardly a summary was there: {tally:?}");
}
