//! Calls as agents make them, and what is inferred from them.

use super::*;

fn told(action: &Action) -> String {
    let views = action.views.iter().map(|view| {
        let lines = match (view.first, view.last) {
            _ if !view.is_range() => String::new(),
            View::PART => ":some".to_owned(),
            (first, last) => format!(":{first}-{last}"),
        };
        let revision = if view.revision.is_empty() { "" } else { &format!(" of {}", view.revision) };
        format!(" {}{lines}{revision}", view.path)
    });
    let edits = action.edits.iter().map(|path| format!(" !{path}"));
    format!("{:?}{}", action.class, views.chain(edits).collect::<String>())
}

/// A script that failed may have changed something before it did.
#[test]
fn edits_by_scripts_are_not_all_or_nothing() {
    for (tool, arguments, expected) in [
        ("Edit", r#"{"file_path":"a.rs"}"#, true),
        ("apply_patch", "*** Begin Patch\n*** Update File: src/a.rs\n@@\n", true),
        ("Bash", r#"{"command":"sed -i s/a/b/ src/a.rs"}"#, false),
        ("shell", r#"{"command":["apply_patch","*** Begin Patch\n*** Update File: a.rs\n"]}"#, false),
    ] {
        let action = of(tool, arguments);
        assert_eq!((action.class, action.all_or_nothing), (Class::Edit, expected), "{tool} {arguments}");
    }
}

#[test]
fn written_files_are_found_in_arguments() {
    let long = format!(r#"{{"content":"{}","file_path":"/w/Long.rs"}}"#, "x".repeat(2 * MAX_ARGUMENTS));
    let patch = r"*** Begin Patch\n*** Update File: src/B.rs\n*** Move to: src/C.rs\n@@\n-x\n+y\n*** Add File: a.rs\n+x";
    for (tool, arguments, expected) in [
        ("Write", r#"{"file_path":"/w/src/A.rs","content":"x"}"#, "/w/src/A.rs"),
        ("Write", &long, "/w/Long.rs"),
        ("mcp__fs__edit_file", r#"{"path":"./a b.rs"}"#, "./a b.rs"),
        ("NotebookEdit", r#"{"notebook_path":"C:\\w\\n.ipynb"}"#, r"C:\w\n.ipynb"),
        ("str_replace_editor", r#"{"command":"str_replace","path":"a.py"}"#, "a.py"),
        ("str_replace_editor", r#"{"command":"view","path":"a.py"}"#, ""),
        ("apply_patch", &patch.replace(r"\n", "\n"), "src/B.rs, src/C.rs, a.rs"),
        ("apply_patch", &format!(r#"{{"input":"{patch}"}}"#), "src/B.rs, src/C.rs, a.rs"),
        ("shell", &format!(r#"{{"command":["apply_patch","{patch}"]}}"#), "src/B.rs, src/C.rs, a.rs"),
        ("exec", &format!(r#"await tools.exec_command({{cmd: "{patch}"}})"#), "src/B.rs, src/C.rs, a.rs"),
        ("apply_patch", "*** Begin Patch\n*** Delete File: old.rs\n*** Add File: new.rs\n+x", "new.rs"),
        ("Bash", r#"{"command":"sed -i s/a/b/ src/a.rs","path":"x"}"#, ""),
        // Contents that are written do not name files.
        ("Bash", r#"{"command":"cat > notes <<E\n*** Add File: a secret\nE"}"#, ""),
        ("create_file", r#"{"filename":"n.txt","file":"a secret"}"#, "n.txt"),
        ("create_file", r#"{"file":"n.txt"}"#, "n.txt"),
        ("create_file", r#"{"path":"n.txt","file":"a\nsecret"}"#, "n.txt"),
        ("Read", r#"{"file_path":"/w/a.rs"}"#, ""),
        ("Edit", r#"{"file_path":""}"#, ""),
        ("Edit", "", ""),
        ("Edit", "[1]", ""),
    ] {
        assert_eq!(written(tool, arguments).join(", "), expected, "{tool} {arguments}");
    }
}

#[test]
fn calls_are_classified_with_their_files_and_lines() {
    for (tool, arguments, expected) in [
        ("Read", r#"{"file_path":"/w/src/A.rs"}"#, "View /w/src/a.rs"),
        ("Read", r#"{"file_path":"/w/a.rs","offset":10,"limit":20}"#, "View /w/a.rs:10-29"),
        ("mcp__fs__read_file", r#"{"path":"a.rs"}"#, "View a.rs"),
        ("str_replace_editor", r#"{"command":"view","path":"a.py","view_range":[3,9]}"#, "View a.py:3-9"),
        ("str_replace_editor", r#"{"command":"str_replace","path":"a.py"}"#, "Edit !a.py"),
        ("text_editor", r#"{"command":"view","path":"a.py"}"#, "View a.py"),
        ("text_editor", r#"{"command":"write","path":"a.py"}"#, "Edit !a.py"),
        ("mcp__fs__read_text_file", r#"{"path":"a.rs","head":9}"#, "View a.rs:1-9"),
        ("mcp__fs__read_text_file", r#"{"path":"a.rs","tail":2}"#, "View a.rs:4294967293-4294967295"),
        ("read_multiple_files", r#"{"paths":["a.rs","B.rs"]}"#, "View a.rs b.rs"),
        ("readFiles", r#"{"files":[{"path":"a","start_line":2,"end_line":4},{"path":"b"}]}"#, "View a:2-4 b"),
        ("readFile", r#"{"filePath":"a.rs","startLine":30,"endLine":40}"#, "View a.rs:30-40"),
        ("read_file", r#"{"path":"a.rs","start_line":"5","end_line":"-1"}"#, "View a.rs:5-4294967295"),
        ("read_file", r#"{"path":"a.rs","offset":-20}"#, "View a.rs:4294967275-4294967295"),
        ("read_file", r#"{"path":"a.rs","offset":-9223372036854775808}"#, "View a.rs"),
        ("read_file", r#"{"path":"a.rs","offset":20,"length":5}"#, "View a.rs:20-24"),
        ("show_file", r#"{"path":"a.rs","line_start":3,"line_end":4}"#, "View a.rs:3-4"),
        ("show_file", r#"{"path":"a.rs","lines":[3,4]}"#, "View a.rs:3-4"),
        ("open", r#"{"path":"a.rs","line_number":60}"#, "View a.rs:10-110"),
        ("mcp__serena__find_symbol", r#"{"name_path":"A","relative_path":"a.rs"}"#, "View"),
        ("replace_string_in_file", r#"{"filePath":"a.rs"}"#, "Edit !a.rs"),
        ("Edit", r#"{"file_path":"a.rs","old_string":"x","new_string":"y"}"#, "Edit !a.rs"),
        ("apply_patch", "*** Begin Patch\n*** Update File: src/a.rs\n@@\n", "Edit !src/a.rs"),
        ("apply_patch", r#"{"input":"*** Begin Patch\n*** Add File: src/b.rs\n+x"}"#, "Edit !src/b.rs"),
        ("Grep", r#"{"pattern":"x","path":"src"}"#, "Search"),
        ("Task", "{}", "Other"),
        ("web_fetch", "{}", "Other"),
        ("TodoWrite", "{}", "Other"),
        ("computer", r#"{"action":"screenshot"}"#, "Other"),
        ("mcp__playwright__browser_take_screenshot", r#"{"filename":"page.png"}"#, "Other"),
        ("view_image", r#"{"path":"a.png"}"#, "Other"),
        ("Bash", r#"{"command":"cat a.rs b.rs"}"#, "View a.rs b.rs"),
        ("Bash", r#"{"command":"cd /w && sed -n '10,20p' src/a.rs"}"#, "View src/a.rs:10-20"),
        ("Bash", r#"{"command":"cat a.rs | head -5"}"#, "View a.rs:1-5"),
        ("Bash", r#"{"command":"head -n 7 a.rs"}"#, "View a.rs:1-7"),
        ("Bash", r#"{"command":"sudo tail -n 7 a.rs"}"#, "View a.rs:4294967288-4294967295"),
        ("Bash", r#"{"command":"cat a.rs | wc -l"}"#, "View a.rs:some"),
        ("Bash", r#"{"command":"cat a.rs > b.rs"}"#, "View a.rs:some"),
        ("PowerShell", r#"{"command":"cat 'c:\\w\\a.rs'"}"#, "View /w/a.rs"),
        ("PowerShell", r#"{"command":"Get-Content a.rs"}"#, "View a.rs"),
        ("run_in_terminal", r#"{"command":"cat a.rs"}"#, "View a.rs"),
        ("mcp__desktop-commander__start_process", r#"{"command":"cat a.rs"}"#, "View a.rs"),
        ("write_stdin", r#"{"session_id":3,"chars":"cat a.rs\n"}"#, "Run"),
        ("Bash", r#"{"command":"git show HEAD:src/a.rs"}"#, "View src/a.rs of head"),
        ("Bash", r#"{"command":"git log -3"}"#, "Run"),
        ("Bash", r#"{"command":"git log -p -3"}"#, "Diff"),
        ("Bash", r#"{"command":"git -C /w diff -- src"}"#, "Diff"),
        ("Bash", r#"{"command":"gh pr diff 39"}"#, "Diff"),
        ("Bash", r#"{"command":"diff -u a b"}"#, "Diff"),
        ("Bash", r#"{"command":"git show 1a2b3c"}"#, "Diff"),
        ("Bash", r#"{"command":"git show --stat=80 1a2b3c"}"#, "Run"),
        ("Bash", r#"{"command":"git show --stat --patch 1a2b3c"}"#, "Diff"),
        ("Bash", r#"{"command":"git diff --name-only; git diff"}"#, "Diff"),
        ("Bash", r#"{"command":"git diff --check && cargo test"}"#, "Run"),
        ("Bash", r#"{"command":"git status | grep diff"}"#, "Run"),
        ("Bash", r#"{"command":"git -c color.ui=never --no-pager diff a"}"#, "Diff"),
        ("Bash", r#"{"command":"git remote show origin"}"#, "Run"),
        ("Bash", r#"{"command":"git log diff"}"#, "Run"),
        ("Bash", r#"{"command":"git -C show log"}"#, "Run"),
        ("Bash", r#"{"command":"git branch merge"}"#, "Run"),
        ("Bash", r#"{"command":"gh pr view 3"}"#, "Run"),
        ("Bash", r#"{"command":"gh run list --branch diff"}"#, "Run"),
        ("Bash", r#"{"command":"git -C /w grep foo"}"#, "Search"),
        ("Bash", r#"{"command":"git grep foo; ls src/"}"#, "Search"),
        ("Bash", r#"{"command":"cargo test 2>&1 | tail -5"}"#, "Run"),
        ("Bash", r#"{"command":"grep x a.rs 2>&1 | head"}"#, "Search"),
        ("Bash", r#"{"command":"ls src &>/dev/null; ls"}"#, "Search"),
        ("Bash", r#"{"command":"cat src/a.rs 2>&1"}"#, "View src/a.rs"),
        ("Bash", r#"{"command":"sed -n 5,9p a.rs | grep -i x"}"#, "View a.rs:some"),
        ("Bash", r#"{"command":"pushd /w && more a.rs; popd"}"#, "View a.rs"),
        ("Bash", r#"{"command":"tac a.rs |& tee b.rs"}"#, "Edit !a.rs !b.rs"),
        ("Bash", r##"{"command":"# look at it\ncat a.rs"}"##, "View a.rs"),
        ("PowerShell", r#"{"command":"gc a.rs"}"#, "View a.rs"),
        ("Bash", r#"{"command":"cargo test && cat out.log"}"#, "View out.log"),
        ("Bash", r#"{"command":"sed -i s/a/b/ src/a.rs"}"#, "Edit !src/a.rs"),
        ("Bash", r#"{"command":"cat > a.py <<'EOF'\nprint(1)\nEOF"}"#, "Edit !a.py"),
        ("Bash", r#"{"command":"git checkout -- src/a.rs"}"#, "Edit !src/a.rs"),
        ("shell", r#"{"command":["bash","-lc","rg foo src"]}"#, "Search"),
        ("shell", r#"{"command":["cat","src/a.rs"]}"#, "View src/a.rs"),
        ("exec", "await tools.exec_command({cmd: \"cat src/a.rs\"})", "View src/a.rs"),
        ("Bash", "", "Run"),
        ("", "", "Other"),
    ] {
        assert_eq!(told(&of(tool, arguments)), expected, "{tool} {arguments}");
    }
}

/// Tools and arguments with unknown names.
#[test]
fn calls_of_unknown_tools_are_classified_by_their_values() {
    for (tool, arguments, expected) in [
        ("mcp__corp__op_3", r#"{"p0":"/w/src/A.rs"}"#, "View /w/src/a.rs:some"),
        ("op", r#"{"p0":"a.rs","p1":7,"p2":20}"#, "View a.rs:some"),
        ("op", r#"{"p0":"a.rs","p1":[7,20]}"#, "View a.rs:some"),
        ("op", r#"{"p0":"a.rs","p1":true,"p2":""}"#, "View a.rs:some"),
        ("op", r#"{"p0":"a.rs","p1":"f(a, b)","p2":"f(a)"}"#, "Edit !a.rs"),
        ("op", r#"{"p0":"run.sh","p1":"cd /w\ncat b.rs\n"}"#, "Edit !run.sh"),
        ("op", r#"{"p0":"*** Begin Patch\n*** Update File: src/a.rs\n@@\n"}"#, "Edit !src/a.rs"),
        ("op", r#"{"p0":"cat a.rs","p1":"/w/src","p2":"Shows it"}"#, "View a.rs"),
        ("op", r#"{"p0":"cd /w && cargo test","p1":60}"#, "Run"),
        ("op", r#"{"p0":"git diff"}"#, "Diff"),
        ("op", r#"{"p0":"cd .. && cat a.rs"}"#, "View a.rs"),
        ("op", r#"{"p0":"grep -n 'def run(self):' a.py"}"#, "Search"),
        ("op", r#"{"command":"sed -n 3,9p a.rs"}"#, "View a.rs:3-9"),
        ("op", r#"{"p0":"a.rs","p1":"1","p2":"40"}"#, "View a.rs:some"),
        // What nothing is known of.
        ("add_comment", r#"{"owner":"o","path":"a.rs","body":"Not so."}"#, "Other"),
        ("op", r#"{"p0":"make test"}"#, "Other"),
        ("op", r#"{"p0":"a.rs","p1":"b.rs"}"#, "Other"),
        ("op", r#"{"p0":"a.rs","p1":"x"}"#, "Other"),
        ("op", r#"{"p0":"src"}"#, "Other"),
        ("op", r#"{"p0":"https://e.org/a.html"}"#, "Other"),
        ("op", r#"{"id":"ABC-12","p1":3}"#, "Other"),
        ("op", r#"{"query":"what a.rs does"}"#, "Other"),
        ("op", r#"{"pattern":"x","p1":"a.rs"}"#, "Other"),
        ("op", r#"{"table":"public.orders"}"#, "Other"),
        ("op", r#"{"domain":"host7.com"}"#, "Other"),
        ("op", r#"{"doc":"reports/3.pdf"}"#, "Other"),
        ("op", r#"{"type":"deployments.apps","name":"a b","namespace":"c"}"#, "Other"),
        ("op", r#"{"element":"More info","ref":"e7"}"#, "Other"),
        ("op", r#"{"message":"Please check.\nmore details follow: a"}"#, "Other"),
        ("op", r#"{"text":"find the bug"}"#, "Other"),
        ("run_tests", r#"{"p0":"a.rs"}"#, "Other"),
    ] {
        assert_eq!(told(&of(tool, arguments)), expected, "{tool} {arguments}");
    }
}

#[test]
fn identical_calls_have_equal_digests() {
    let digest = |tool, arguments| of(tool, arguments).call;
    assert_eq!(digest("a", "{}"), digest("a", "{}"));
    assert_ne!(digest("a", "{}"), digest("b", "{}"));
    assert_ne!(digest("a", "b"), digest("ab", ""));
}

proptest::proptest! {
    #[test]
    fn any_call_is_classified_without_panicking(tool in "(Bash|Read|apply_patch|x)", arguments in "\\PC{0,200}", script in "[a-z;&|'\"\\\\ <>/.$-]{0,80}") {
        of(&tool, &arguments);
        of(&tool, &serde_json::json!({ "command": script }).to_string());
        of(&tool, &serde_json::json!({ "a": script, "b": arguments }).to_string());
    }
}
