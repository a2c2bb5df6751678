//! The parameters of a URL. Each must be known and be given once; anything else is reported as wrong.

use crate::url::unescaped;

/// Parameters that have not been read yet.
#[derive(Debug)]
pub(super) struct Query {
    left: Vec<(String, String)>,
    /// The names that were asked for.
    known: Vec<&'static str>,
}

/// A wrong parameter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) parameter: String,
    /// What is wrong with it.
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(parameter: &str, message: impl Into<String>) -> Self {
        Self { parameter: parameter.to_owned(), message: message.into() }
    }
}

impl Query {
    /// Parses a query.
    pub(super) fn new(text: &str) -> Result<Self, Wrong> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let left = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let read = |text: &str| unescaped(&text.replace('+', " "));
            read(name).zip(read(value)).ok_or_else(|| Wrong::new(name, "its escapes are not UTF-8"))
        });
        Ok(Self { left: left.collect::<Result<_, _>>()?, known: Vec::new() })
    }

    /// The value of a parameter; `None` if it is not given.
    pub(super) fn take(&mut self, name: &'static str) -> Result<Option<String>, Wrong> {
        self.known.push(name);
        let (mut values, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.left).into_iter().partition(|(other, _)| other == name);
        self.left = left;
        if values.len() > 1 {
            return Err(Wrong::new(name, "it is given more than once"));
        }
        Ok(values.pop().map(|(_, value)| value))
    }

    /// Checks that no parameters are left besides those that were read.
    pub(super) fn end(self) -> Result<(), Wrong> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let known: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
        Err(Wrong::new(name, format!("there is no such parameter, only {}", known.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_repeated_query_parameters_are_refused() {
        for (text, expected) in [
            ("", Ok((None, None))),
            ("a=1&b=x+y%2B", Ok((Some("1"), Some("x y+")))),
            ("b&", Ok((None, Some("")))),
            ("a=1&a=1", Err(("a", "it is given more than once"))),
            ("c=1&d", Err(("c", "there is no such parameter, only `a`, `b`"))),
            ("A=1", Err(("A", "there is no such parameter, only `a`, `b`"))),
            ("b=%f", Err(("b", "its escapes are not UTF-8"))),
        ] {
            let read = || {
                let mut query = Query::new(text)?;
                let both = (query.take("a")?, query.take("b")?);
                query.end()?;
                Ok(both)
            };
            let expected = expected
                .map(|(a, b): (Option<&str>, Option<&str>)| (a.map(str::to_owned), b.map(str::to_owned)))
                .map_err(|(parameter, message)| Wrong::new(parameter, message));
            assert_eq!(read(), expected, "{text}");
        }
    }
}
