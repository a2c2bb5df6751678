//! Agent sessions that grow step by step, the same on every machine.
//!
//! A step is a message of the model with a tool call, and the tool's result. Sizes and kinds are modelled on recorded
//! sessions: most results are short, a few are very long, and a message and its result take some 4 KB on average.

use bytes::Bytes;
use serde_json::{Value, json};

use super::text::{self, Random};

/// Bytes of the last result of a large session.
const LAST: usize = 4000;

/// The form of requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    Anthropic,
    OpenAiChat,
}

/// A session of one user with one agent.
pub(crate) struct Session {
    dialect: Dialect,
    random: Random,
    frame: String,
    messages: Vec<String>,
    /// The size of all messages in bytes.
    bytes: usize,
    calls: usize,
    /// The last result worth repeating.
    earlier: Option<(Tool, String)>,
}

#[derive(Debug, Clone, Copy)]
enum Tool {
    Read,
    Shell,
    Fetch,
}

struct Call {
    id: String,
    tool: Tool,
    arguments: Value,
    result: String,
}

impl Session {
    /// A session that will grow to about `bytes` bytes; what precedes the first message is sized to fit.
    pub(crate) fn new(dialect: Dialect, bytes: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let frame = frame(dialect, &mut random, (bytes / 5).min(48 * 1024));
        let mut session =
            Self { dialect, random, frame, messages: Vec::new(), bytes: 0, calls: 0, earlier: None };
        let task = text::prose(&mut session.random, (bytes / 20).min(2000));
        let content = match dialect {
            Dialect::Anthropic => json!([{"type": "text", "text": task}]),
            Dialect::OpenAiChat => {
                let system = text::prose(&mut session.random, (bytes / 10).min(24 * 1024));
                session.push(&json!({"role": "system", "content": system}));
                json!(task)
            }
        };
        session.push(&json!({"role": "user", "content": content}));
        session
    }

    /// A session that has grown to about `bytes` bytes, step by step. The last step is an ordinary one, so that figures
    /// for different sizes are comparable.
    pub(crate) fn grown(dialect: Dialect, bytes: usize, seed: u64) -> Self {
        let mut session = Self::new(dialect, bytes, seed);
        let last = (bytes / 8).min(LAST);
        while session.len() + last < bytes {
            session.step();
        }
        let result = text::log(&mut session.random, last);
        let last = session.call_with(Tool::Shell, result);
        session.push_calls(&[last]);
        session
    }

    /// A session of `bytes` bytes whose results all come at once: one message of the model with many calls.
    pub(crate) fn burst(dialect: Dialect, bytes: usize, seed: u64) -> Self {
        let mut session = Self::new(dialect, bytes, seed);
        let (mut calls, mut length) = (Vec::new(), session.len());
        while length < bytes {
            let call = session.call();
            length += call.result.len() * 11 / 10 + 300;
            calls.push(call);
        }
        session.push_calls(&calls);
        session
    }

    /// Adds a call and its result.
    pub(crate) fn step(&mut self) {
        let call = self.call();
        self.push_calls(&[call]);
    }

    /// The size of the request body in bytes.
    pub(crate) fn len(&self) -> usize {
        self.frame.len() + self.bytes + self.messages.len() + 1
    }

    /// The request body.
    pub(crate) fn body(&self) -> Bytes {
        Bytes::from(format!("{}{}]}}", self.frame, self.messages.join(",")))
    }

    fn push(&mut self, message: &Value) {
        let message = message.to_string();
        self.bytes += message.len();
        self.messages.push(message);
    }

    fn call(&mut self) -> Call {
        // One in a hundred is very long; the lengths of the others are evenly distributed on a logarithmic scale.
        let bytes = match self.random.below(100) {
            0 => 60_000,
            _ => 40 << self.random.below(9),
        };
        let bytes = bytes / 2 + self.random.below(bytes);
        let random = &mut self.random;
        let (tool, result) = match random.below(10) {
            0..=3 => (Tool::Read, text::code(random, bytes)),
            4..=7 => (Tool::Shell, text::log(random, bytes)),
            8 => (Tool::Fetch, text::json(random, bytes)),
            _ => self.earlier.take().unwrap_or_else(|| (Tool::Shell, text::log(random, bytes))),
        };
        if result.len() > 1500 {
            self.earlier = Some((tool, result.clone()));
        }
        self.call_with(tool, result)
    }

    fn call_with(&mut self, tool: Tool, result: String) -> Call {
        self.calls += 1;
        let id = format!("toolu_{:020}", self.calls);
        let arguments = match tool {
            Tool::Read => json!({"file_path": format!("/home/me/project/src/module_{}.rs", self.calls)}),
            Tool::Shell => json!({"command": "cargo test --workspace", "description": "Run the tests"}),
            Tool::Fetch => json!({"url": format!("https://example.org/api/items?page={}", self.calls)}),
        };
        Call { id, tool, arguments, result }
    }

    fn push_calls(&mut self, calls: &[Call]) {
        let length = 40 + self.random.below(400);
        let said = text::prose(&mut self.random, length);
        match self.dialect {
            Dialect::Anthropic => self.push_blocks(&said, calls),
            Dialect::OpenAiChat => self.push_tool_messages(&said, calls),
        }
    }

    fn push_blocks(&mut self, said: &str, calls: &[Call]) {
        let mut blocks = vec![json!({"type": "text", "text": said})];
        blocks.extend(calls.iter().map(|call| {
            json!({"type": "tool_use", "id": call.id, "name": call.tool.name(), "input": call.arguments})
        }));
        self.push(&json!({"role": "assistant", "content": blocks}));
        let results = calls.iter().map(|call| match call.tool {
            Tool::Fetch => json!({
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": [{"type": "text", "text": call.result}],
            }),
            Tool::Read | Tool::Shell => {
                json!({"type": "tool_result", "tool_use_id": call.id, "content": call.result})
            }
        });
        self.push(&json!({"role": "user", "content": results.collect::<Vec<_>>()}));
    }

    fn push_tool_messages(&mut self, said: &str, calls: &[Call]) {
        let made = calls.iter().map(|call| {
            let function = json!({"name": call.tool.name(), "arguments": call.arguments.to_string()});
            json!({"id": call.id, "type": "function", "function": function})
        });
        self.push(&json!({"role": "assistant", "content": said, "tool_calls": made.collect::<Vec<_>>()}));
        for call in calls {
            self.push(&json!({"role": "tool", "tool_call_id": call.id, "content": call.result}));
        }
    }
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Shell => "Bash",
            Self::Fetch => "WebFetch",
        }
    }
}

/// Everything before the first message (model, system prompt, tools), about `bytes` bytes.
fn frame(dialect: Dialect, random: &mut Random, bytes: usize) -> String {
    let mut tools = Vec::new();
    for number in 0..(bytes / 2 / 1200).max(1) {
        let about = text::prose(random, 600.min(bytes / 8));
        let schema = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": text::prose(random, 120.min(bytes / 16))},
                "timeout": {"type": "number", "description": "In milliseconds"},
                "flags": {"type": "array", "items": {"type": "string", "enum": ["fast", "deep"]}},
            },
            "required": ["command"],
        });
        let name = format!("tool_{number}");
        tools.push(match dialect {
            Dialect::Anthropic => json!({"name": name, "description": about, "input_schema": schema}),
            Dialect::OpenAiChat => {
                let function = json!({"name": name, "description": about, "parameters": schema});
                json!({"type": "function", "function": function})
            }
        });
    }
    let mut head = match dialect {
        Dialect::Anthropic => json!({
            "model": "claude-sonnet-4-5",
            "max_tokens": 32000,
            "system": [{"type": "text", "text": text::prose(random, bytes / 2)}],
            "metadata": {"user_id": "user_1_account__session_0f8b7c1e-3d52-4a6e-9b1a-5c2d7e8f9a0b"},
        }),
        Dialect::OpenAiChat => json!({"model": "gpt-5", "prompt_cache_key": "0f8b7c1e-3d52-4a6e"}),
    };
    head["tools"] = Value::Array(tools);
    head["stream"] = json!(true);
    let mut head = head.to_string();
    head.pop();
    head.push_str(",\"messages\":[");
    head
}
