//! The error texts by which servers say that a prompt is too long: codes and sentences that certainly mean that.
//!
//! There is one table for all dialects: a text comes from whoever serves the model, and resellers pass it on in any
//! dialect. All texts are in lower case.

/// A way to say that a prompt is too long.
#[derive(Debug)]
pub(super) struct Wording {
    /// The text that occurs in the error's message, code or type.
    pub(super) says: &'static str,
    /// Texts that may precede the number of tokens that fit.
    pub(super) limit: &'static [&'static str],
    /// Texts that may precede the number of tokens that were sent.
    pub(super) prompt: &'static [&'static str],
    /// Which tokens that number counts.
    pub(super) counts: Counts,
}

/// Which tokens an error counts as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// The prompt, and perhaps the requested answer too.
    Request,
    /// The prompt only. If it is short, the requested answer is what does not fit.
    Prompt,
}

/// Texts that precede the numbers in errors that many servers have in common.
const LIMITS: &[&str] = &[
    "maximum context length is ",
    "maximum context length of ",
    "maximum prompt length is ",
    "exceed the configured limit of ",
    "too large for model with ",
    "available context size (",
    "while limit is ",
    "n_ctx=",
];
const PROMPTS: &[&str] = &[
    "your messages resulted in ",
    "you requested a total of ",
    "you requested about ",
    "you requested ",
    "request (",
    "request contains ",
    "prompt contains ",
    "current length is ",
    "n_prompt_tokens=",
];

const fn common(says: &'static str) -> Wording {
    request(says, LIMITS, PROMPTS)
}

const fn request(
    says: &'static str,
    limit: &'static [&'static str],
    prompt: &'static [&'static str],
) -> Wording {
    Wording { says, limit, prompt, counts: Counts::Request }
}

const fn prompt(
    says: &'static str,
    limit: &'static [&'static str],
    prompt: &'static [&'static str],
) -> Wording {
    Wording { says, limit, prompt, counts: Counts::Prompt }
}

/// The texts that mean that the prompt is too long. The first one that occurs in an error tells where its numbers are.
pub(super) const OVERFLOW: &[Wording] = &[
    // Anthropic, and what older models and resellers make of it.
    request(
        "prompt is too long",
        &["tokens > ", "token > ", "maximum context length: "],
        &["prompt is too long: "],
    ),
    prompt("input length and `max_tokens` exceed context limit", &[" > "], &["exceed context limit: "]),
    request("input is too long for requested model", &[], &[]),
    // Gemini.
    request(
        "exceeds the maximum number of tokens allowed",
        &["tokens allowed (", "tokens allowed "],
        &["input token count ("],
    ),
    request("the input token count is", &["only supports up to "], &["the input token count is "]),
    // OpenAI, and whoever answers like it.
    common("context_length_exceeded"),
    common("maximum context length is"),
    common("maximum context length of"),
    common("input tokens exceed the configured limit of"),
    request("exceeds the context window of this model", &[], &[]),
    // xAI, Mistral, GitHub Copilot, Kimi, MiniMax, z.ai, DashScope, Poolside.
    common("maximum prompt length is"),
    common("too large for model with"),
    request("prompt token count of", &["exceeds the limit of "], &["prompt token count of "]),
    request("exceeded model token limit", &["model token limit: "], &["requested: "]),
    request("context window exceeds limit", &[], &[]),
    request("prompt exceeds max length", &[], &[]),
    request("range of input length should be", &["should be [1, "], &[]),
    request("maximum allowed input length of", &["allowed input length of "], &["input length "]),
    // vLLM, SGLang, TGI, LiteLLM.
    request("longer than the maximum model length of", &["maximum model length of "], &["prompt (length "]),
    request("too long to fit into the model", &["(context length "], &["total length "]),
    request("the model's context length is only", &["context length is only "], &[]),
    request("longer than the model's context length", &["model's context length ("], &["the input ("]),
    prompt("`inputs` tokens + `max_new_tokens` must be <=", &["must be <= "], &["given: "]),
    common("contextwindowexceedederror"),
    // llama.cpp, llama-cpp-python, LM Studio, Ollama.
    common("exceed_context_size_error"),
    common("exceeds the available context size"),
    request("context size has been exceeded", &[], &[]),
    request("exceed context window of", &["context window of "], &["requested tokens ("]),
    request("is greater than the context length", &["n_ctx: "], &["n_keep: "]),
    request("loaded with context length of only", &["context length of only "], &["keep the first "]),
    request("prompt too long; exceeded", &[], &[]),
    request("the configured context size is", &["configured context size is "], &["prompt has "]),
];

/// Those of [`OVERFLOW`] that llama.cpp reports with status 500.
pub(super) const OVERFLOW_WITH_500: &[&str] =
    &["exceed_context_size_error", "context size has been exceeded"];

/// Errors about messages that the model's chat template rejects. Servers report them as faults of their own.
pub(super) const TEMPLATE: &[&str] = &["jinja", "raise_exception", "roles must alternate"];

/// Errors that are reported as bad requests although nothing is wrong with the request: by Groq, if it cannot parse the
/// model's calls or answer; by Anthropic, if a history that it holds cannot be continued in this way.
pub(super) const UNANSWERED: &[&str] =
    &["'failed_generation'", "tool_use_failed", "thread_already_continued", "thread_continue_in_flight"];

/// Texts that precede a quotation in an error, which may say anything: of the request (servers that use Pydantic), or
/// of the model's output (llama.cpp). The commas exclude errors that merely name the member.
pub(super) const QUOTES: &[&str] =
    &[", 'input': ", ",\"input\":", ", \"input\":", "input_value=", "failed to parse input at pos "];

#[cfg(test)]
mod tests {
    use super::super::answer::Refused;
    use super::super::refusal::refused;
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: Refused) {
        assert_eq!(refused(status, body.as_bytes()), expected, "{body}");
    }

    #[test]
    fn patterns_are_lower_case_and_not_shadowed() {
        for wording in OVERFLOW {
            for words in [&[wording.says], wording.limit, wording.prompt, QUOTES, UNANSWERED].concat() {
                assert_eq!(words, words.to_ascii_lowercase());
            }
            let shadowing = OVERFLOW.iter().find(|first| wording.says.contains(first.says)).expect("itself");
            assert_eq!(shadowing.says, wording.says, "no row is hidden by an earlier one");
        }
    }

    /// Sentences as servers send them, each with the tokens that were sent and those that fit.
    const SENTENCES: &[(&str, Option<u64>, Option<u64>)] = &[
        ("prompt is too long: 210000 tokens > 200000 maximum", Some(210_000), Some(200_000)),
        ("prompt is too long: 2 tokens > 1 maximum", Some(2), Some(1)),
        ("prompt is too long: 2 token > 1 maximum", Some(2), Some(1)),
        ("prompt is too long", None, None),
        (
            "The prompt is too long: 140000, model maximum context length: 131071",
            Some(140_000),
            Some(131_071),
        ),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
            Some(190_000),
            Some(200_000),
        ),
        ("Input is too long for requested model.", None, None),
        (
            "The input token count (1048999) exceeds the maximum number of tokens allowed (1048576).",
            Some(1_048_999),
            Some(1_048_576),
        ),
        (
            "The input token count exceeds the maximum number of tokens allowed 1048576.",
            None,
            Some(1_048_576),
        ),
        (
            "Unable to submit request because the input token count is 32821 but model only supports up to 32768. Reduce the input token count and try again.",
            Some(32_821),
            Some(32_768),
        ),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300213 tokens. Please reduce the length of the messages.",
            Some(300_213),
            Some(272_000),
        ),
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130512 tokens. Please reduce the length of the messages.",
            Some(130_512),
            Some(128_000),
        ),
        (
            "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens (36000 in the messages, 4000 in the completion).",
            Some(36_000),
            Some(32_768),
        ),
        (
            "This model's maximum context length is 131072 tokens. However, you requested 0 output tokens and your prompt contains at least 131073 input tokens, for a total of at least 131073 tokens.",
            Some(131_073),
            Some(131_072),
        ),
        (
            "This endpoint's maximum context length is 200000 tokens. However, you requested about 250000 tokens (245000 of text input, 5000 in the output).",
            Some(245_000),
            Some(200_000),
        ),
        (
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            None,
            None,
        ),
        (
            "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            Some(65_673),
            Some(32_768),
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            Some(537_812),
            Some(131_072),
        ),
        ("prompt token count of 130000 exceeds the limit of 128000", Some(130_000), Some(128_000)),
        (
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
            Some(300_000),
            Some(262_144),
        ),
        ("invalid params, context window exceeds limit (2013)", None, None),
        ("Prompt exceeds max length", None, None),
        (
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
            None,
            Some(129_024),
        ),
        (
            "Input length 300000 exceeds the maximum allowed input length of 262144 tokens.",
            Some(300_000),
            Some(262_144),
        ),
        (
            "The decoder prompt (length 9254) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            Some(9254),
            Some(4096),
        ),
        (
            "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
            Some(25_938),
            Some(4096),
        ),
        (
            "You passed 5952 input tokens and requested 0 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4096 tokens.",
            Some(5952),
            Some(4096),
        ),
        (
            "The input (140000 tokens) is longer than the model's context length (131072 tokens).",
            Some(140_000),
            Some(131_072),
        ),
        (
            "Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 140000 tokens: 130000 tokens from the input messages and 10000 tokens for the completion.",
            Some(130_000),
            Some(131_072),
        ),
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1887 `inputs` tokens and 1024 `max_new_tokens`",
            Some(1887),
            Some(2048),
        ),
        (
            "litellm.BadRequestError: ContextWindowExceededError: This model's maximum context length is 131072 tokens. However, your request has 199948 input tokens.",
            Some(199_948),
            Some(131_072),
        ),
        (
            "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192, context_length_exceeded",
            Some(9000),
            Some(8192),
        ),
        (
            "request (4476 tokens) exceeds the available context size (4096 tokens), try increasing it",
            Some(4476),
            Some(4096),
        ),
        ("Context size has been exceeded.", None, None),
        ("Requested tokens (2285) exceed context window of 2048", Some(2285), Some(2048)),
        (
            "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 24574>= n_ctx: 4096).",
            Some(24_574),
            Some(4096),
        ),
        (
            "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context length of only 7866 tokens, which is not enough.",
            Some(10_136),
            Some(7866),
        ),
        ("prompt too long; exceeded max context length by 5000 tokens", None, None),
        (
            "Prompt has 70,000 tokens, but the configured context size is 65,536 tokens",
            Some(70_000),
            Some(65_536),
        ),
    ];

    /// In the error bodies of all dialects.
    #[test]
    fn overflow_messages_give_the_limit_and_the_prompt_size() {
        for &(message, prompt, limit) in SENTENCES {
            let expected = Refused::Overflow { limit, prompt };
            check(400, &format!(r#"{{"error":{{"message":"{message}","code":null}}}}"#), expected);
            check(400, &format!(r#"{{"type":"error","error":{{"message":"{message}"}}}}"#), expected);
            check(400, &format!(r#"[{{"error":{{"code":400,"message":"{message}"}}}}]"#), expected);
            check(400, &format!(r#"{{"object":"error","message":"{message}","code":400}}"#), expected);
            check(422, &format!(r#"{{"error":"{message}","error_type":"validation"}}"#), expected);
            check(429, &format!(r#"{{"error":{{"message":"{message}"}}}}"#), Refused::Other);
        }
    }

    /// Even if the model's answer quotes such a sentence.
    #[test]
    fn overflow_messages_quoted_in_an_answer_are_not_refusals() {
        let template = ("Error rendering prompt with jinja template", None, None);
        for (said, ..) in SENTENCES.iter().chain([&template]) {
            for answer in [
                format!(
                    r#"{{"type":"message","content":[{{"type":"text","text":"{said}"}}],"stop_reason":"end_turn"}}"#
                ),
                format!(
                    r#"{{"choices":[{{"message":{{"content":"{said}"}},"finish_reason":"stop"}}],"error":null}}"#
                ),
                format!(
                    r#"{{"object":"response","error":null,"instructions":"{said}","output":[{{"type":"message"}}]}}"#
                ),
                format!(r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{said}"}}]}}}}]}}"#),
                format!(r#"[{{"candidates":[{{"content":{{"parts":[{{"text":"{said}"}}]}}}}]}}]"#),
                format!(
                    r#"{{"response":{{"candidates":[{{"content":{{"parts":[{{"text":"{said}"}}]}}}}]}}}}"#
                ),
            ] {
                check(200, &answer, Refused::Other);
                check(200, &format!("data: {answer}\n\ndata: {{}}\n\n"), Refused::Other);
            }
            for event in [
                format!(
                    r#"{{"type":"response.created","response":{{"error":null,"instructions":"{said}"}}}}"#
                ),
                format!(
                    r#"{{"type":"content_block_delta","delta":{{"type":"text_delta","text":"{said}"}}}}"#
                ),
                format!(r#"{{"type":"response.output_text.delta","delta":"{said}"}}"#),
                format!(r#"{{"choices":[{{"delta":{{"content":"{said}"}}}}]}}"#),
            ] {
                check(200, &format!("data: {event}\n\n"), Refused::Other);
            }
        }
    }

    #[test]
    fn overflow_codes_are_distinguished_from_other_refusals() {
        let overflow = |prompt, limit| Refused::Overflow { limit, prompt };
        for (status, body, expected) in [
            (400, r#"{"error":{"code":"context_length_exceeded"}}"#, overflow(None, None)),
            (500, r#"{"error":{"code":"context_length_exceeded"}}"#, Refused::Other),
            (
                400,
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"too much","n_prompt_tokens":4476,"n_ctx":4096}}"#,
                overflow(Some(4476), Some(4096)),
            ),
            (
                500,
                r#"{"error":{"code":500,"type":"exceed_context_size_error","message":"the request exceeds the available context size","n_prompt_tokens":1407,"n_ctx":256}}"#,
                overflow(Some(1407), Some(256)),
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#,
                overflow(None, None),
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"\n------------\nWhile executing CallExpression at line 19 in source:\n…\nError: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...","type":"server_error"}}"#,
                Refused::Malformed,
            ),
            (
                500,
                r#"{"error":{"code":500,"message":"Conversation roles must alternate user/assistant/user/assistant/... at row 19","type":"server_error"}}"#,
                Refused::Malformed,
            ),
            (500, r#"{"error":{"message":"Internal server error","type":"api_error"}}"#, Refused::Other),
            (
                400,
                r#"{"error":{"message":"input length and `max_tokens` exceed context limit: 73000 + 128000 > 200000, decrease input length"}}"#,
                Refused::Answer,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 32768 tokens. However, you requested 33000 tokens (3000 in the messages, 30000 in the completion).","code":"context_length_exceeded"}}"#,
                Refused::Answer,
            ),
            (
                400,
                r#"{"error":{"message":"maximum context length is 40000 tokens, however you requested 44000 (7 in the messages, 9,000 in the functions, and 30,000 in the completion)"}}"#,
                Refused::Answer,
            ),
            (
                400,
                r#"{"error":{"message":"maximum context length is 9 tokens, however you requested 12 (7 in the messages, 4 in the functions, and 1 in the completion)"}}"#,
                overflow(Some(11), Some(9)),
            ),
            (
                400,
                r#"{"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: 30000. This model's maximum context length is 32768 tokens and your request has 3000 input tokens (30000 > 32768 - 3000).","code":400}"#,
                Refused::Answer,
            ),
        ] {
            check(status, body, expected);
        }
        for message in [
            "An assistant message with 'tool_calls' must be followed by tool messages",
            "No tool output found for function call call_1.",
            "max_tokens is too large",
            "max_tokens: 5 > 4, which is the maximum",
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
            "messages: text content blocks must be non-empty",
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
            "You have reached your specified API usage limits",
            "Please use a valid role: user, model.",
            "Please ensure that function call turn comes immediately after a user turn",
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
        ] {
            check(400, &format!(r#"{{"error":{{"message":"{message}","code":null}}}}"#), Refused::Other);
        }
        check(413, r#"{"error":{"message":"Request exceeds the maximum size"}}"#, Refused::Other);
        check(429, r#"{"error":{"message":"tokens per min","code":"rate_limit_exceeded"}}"#, Refused::Other);
    }

    /// The fault is in the model's output, or in a history that the provider holds, not in the request.
    #[test]
    fn failed_generations_and_continuations_are_unanswered() {
        for error in [
            r#""message":"Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.","type":"invalid_request_error""#,
            r#""message":"Tool choice is none, but model called a tool","code":"tool_use_failed","failed_generation":"prompt is too long""#,
            r#""type":"invalid_request_error","message":"It was.","details":{"error_code":"thread_already_continued"}"#,
        ] {
            check(400, &format!(r#"{{"error":{{{error}}}}}"#), Refused::Unanswered);
        }
    }

    /// The quotation is of the request, or of the model's output.
    #[test]
    fn overflow_messages_quoted_in_an_error_are_ignored() {
        for (status, message) in [
            (
                400,
                "[{'type': 'missing', 'loc': ('body', 'model'), 'msg': 'Field required', 'input': {'messages': [{'role': 'user', 'content': 'prompt is too long: 9 tokens > 5 maximum'}]}}]",
            ),
            (
                400,
                "1 validation error for Request: temperature: Input should be a valid number [type=float_parsing, input_value='maximum context length is 5', input_type=str]",
            ),
            (
                422,
                r#"{\"msg\":\"Field required\",\"input\":{\"prompt\":\"Context size has been exceeded.\"}}"#,
            ),
            (
                422,
                r#"{\"msg\": \"Field required\", \"input\": {\"prompt\": \"Context size has been exceeded.\"}}"#,
            ),
            (
                500,
                "Failed to parse input at pos 12: Context size has been exceeded. The jinja template calls raise_exception",
            ),
        ] {
            check(
                status,
                &format!(r#"{{"error":{{"message":"{message}","code":{status}}}}}"#),
                Refused::Other,
            );
            check(200, &format!(r#"{{"error":{{"message":"{message}","code":{status}}}}}"#), Refused::Other);
        }
        let named = r#"{"error":{"message":"Invalid 'input': maximum context length is 8192 tokens."}}"#;
        check(400, named, Refused::Overflow { limit: Some(8192), prompt: None });
        let named =
            r#"{"error":{"message":"{\"input\":\"This model's maximum context length is 8192 tokens.\"}"}}"#;
        check(400, named, Refused::Overflow { limit: Some(8192), prompt: None });
    }
}
