//! Writes JSON the way nobody would: odd white space, needless escapes, shuffled keys, unknown members.
//!
//! What a node says is fixed; how it is spelled is drawn from a seed, so that one conversation has many bodies.

use std::fmt::Write as _;

/// A JSON value that remembers which of its objects the gateway reads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node {
    /// Text that is written as it is.
    Raw(String),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object on a path that is read.
    Map(Vec<(String, Self)>),
    /// An object whose content does not matter.
    Opaque(Vec<(String, Self)>),
}

impl Node {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn raw(text: impl Into<String>) -> Self {
        Self::Raw(text.into())
    }

    pub(crate) fn map<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Map(owned(members))
    }

    pub(crate) fn opaque<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Opaque(owned(members))
    }

    /// The object with one more member.
    pub(crate) fn with(mut self, key: &str, value: Self) -> Self {
        if let Self::Map(members) | Self::Opaque(members) = &mut self {
            members.push((key.to_owned(), value));
        }
        self
    }

    /// How many objects of one kind it holds.
    pub(crate) fn objects(&self, read: bool) -> usize {
        let inner =
            |members: &[(String, Self)]| members.iter().map(|(_, node)| node.objects(read)).sum::<usize>();
        match self {
            Self::Raw(_) | Self::Text(_) => 0,
            Self::List(items) => items.iter().map(|node| node.objects(read)).sum(),
            Self::Map(members) => usize::from(read) + inner(members),
            Self::Opaque(members) => usize::from(!read) + inner(members),
        }
    }
}

fn owned<const N: usize>(members: [(&str, Node); N]) -> Vec<(String, Node)> {
    members.into_iter().map(|(key, node)| (key.to_owned(), node)).collect()
}

/// Draws numbers from a seed: the same seed, the same numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// How values are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As most clients write: no space, only what must be escaped.
    Compact,
    /// As Python writes: spaces after separators, nothing but ASCII.
    Python,
    /// Anything that is still JSON.
    Wild,
}

/// A flaw in one object: it can be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// A key occurs twice.
    Twice,
    /// A key is written with an escape.
    Escaped,
}

/// Where a flaw goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sabotage {
    /// Into an object that is read, or into one that is not.
    pub(crate) read: bool,
    /// The how-many-th of them.
    pub(crate) object: usize,
    pub(crate) flaw: Flaw,
}

/// The value as text.
pub(crate) fn write(node: &Node, spelling: Spelling, seed: u64) -> String {
    sabotaged(node, spelling, seed, None)
}

/// The value as text, with a flaw.
pub(crate) fn sabotaged(node: &Node, spelling: Spelling, seed: u64, flaw: Option<Sabotage>) -> String {
    let mut writer = Writer { out: String::new(), dice: Dice(seed), spelling, flaw, read: 0, opaque: 0 };
    writer.space();
    writer.node(node);
    writer.space();
    writer.out
}

struct Writer {
    out: String,
    dice: Dice,
    spelling: Spelling,
    flaw: Option<Sabotage>,
    /// Objects so far.
    read: usize,
    opaque: usize,
}

impl Writer {
    fn node(&mut self, node: &Node) {
        match node {
            Node::Raw(text) => self.out.push_str(text),
            Node::Text(text) => self.text(text),
            Node::List(items) => {
                self.out.push('[');
                self.space();
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        self.separator(",");
                    }
                    self.node(item);
                }
                self.space();
                self.out.push(']');
            }
            Node::Map(members) => {
                let flaw = self.flaw.filter(|flaw| flaw.read && flaw.object == self.read);
                self.read += 1;
                self.object(members, flaw.map(|flaw| flaw.flaw));
            }
            Node::Opaque(members) => {
                let flaw = self.flaw.filter(|flaw| !flaw.read && flaw.object == self.opaque);
                self.opaque += 1;
                self.object(members, flaw.map(|flaw| flaw.flaw));
            }
        }
    }

    fn object(&mut self, members: &[(String, Node)], flaw: Option<Flaw>) {
        let mut order: Vec<usize> = (0..members.len()).collect();
        if self.spelling == Spelling::Wild {
            for at in (1..order.len()).rev() {
                order.swap(at, self.dice.below(at + 1));
            }
        }
        let victim = order.first().copied().unwrap_or_default();
        self.out.push('{');
        self.space();
        for (at, index) in order.into_iter().enumerate() {
            let (key, value) = &members[index];
            if at > 0 {
                self.separator(",");
            }
            let escaped = flaw == Some(Flaw::Escaped) && index == victim;
            self.member(key, escaped, value);
        }
        if flaw == Some(Flaw::Twice)
            && let Some((key, _)) = members.get(victim)
        {
            self.separator(",");
            self.member(key, false, &Node::raw("null"));
        }
        self.space();
        self.out.push('}');
    }

    fn member(&mut self, key: &str, escaped: bool, value: &Node) {
        if escaped {
            let mut rest = key.chars();
            let first = rest.next().map_or(0, u32::from);
            let _ = write!(self.out, "\"\\u{first:04x}{}\"", rest.as_str());
        } else {
            let _ = write!(self.out, "\"{key}\"");
        }
        self.separator(":");
        self.node(value);
    }

    fn separator(&mut self, mark: &str) {
        if self.spelling == Spelling::Wild {
            self.space();
        }
        self.out.push_str(mark);
        match self.spelling {
            Spelling::Compact => {}
            Spelling::Python => self.out.push(' '),
            Spelling::Wild => self.space(),
        }
    }

    fn space(&mut self) {
        if self.spelling == Spelling::Wild {
            for _ in 0..[0, 0, 0, 1, 3][self.dice.below(5)] {
                self.out.push([' ', '\n', '\r', '\t'][self.dice.below(4)]);
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            let escape = match self.spelling {
                Spelling::Compact => false,
                Spelling::Python => !character.is_ascii(),
                Spelling::Wild => self.dice.one_in(12),
            };
            let short = match character {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '/' if escape => "\\/",
                _ => "",
            };
            let long = (escape && (short.is_empty() || self.dice.one_in(3)))
                || (character < ' ' && short.is_empty());
            if long {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(self.out, "\\u{unit:04x}");
                }
            } else if short.is_empty() {
                self.out.push(character);
            } else {
                self.out.push_str(short);
            }
        }
        self.out.push('"');
    }
}
