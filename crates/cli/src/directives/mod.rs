//! `#BURSAR` lines of scripts: options of `bursar run` and `bursar quote` that are kept in the script.
//! A script without them may have `#SBATCH` lines instead.

mod sbatch;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::Path;

use crate::exit::{Exit, Failure};
use crate::render::note;

/// How much of a script is searched.
const MAX_BYTES: u64 = 64 << 10;
const MARK: &str = "#BURSAR";
const SLURM_MARK: &str = "#SBATCH";

/// The arguments with the options of the script that is run, before those on the command line, which
/// override them. The script is then named by its full path.
pub(crate) fn expanded(arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some((verb, script)) = script(&arguments) else { return Ok(arguments) };
    let path = Path::new(&arguments[script]);
    let Some(text) = beginning(path) else { return Ok(arguments) };
    let unclosed = |OpenQuote(line)| {
        let why = format!("{}: a quotation mark is not closed in: {line}", path.display());
        Failure::because(Exit::Usage, why)
    };
    let mut options = words_after(&text, MARK).map_err(unclosed)?;
    if options.is_empty() {
        options = slurm_options(path, &words_after(&text, SLURM_MARK).map_err(unclosed)?)?;
    }
    if options.is_empty() {
        return Ok(arguments);
    }
    let full = path.canonicalize().map(OsString::from).unwrap_or_else(|_| path.into());
    let mut all = arguments;
    all[script] = full;
    let options = options.into_iter().map(OsString::from);
    drop(all.splice(verb + 1..verb + 1, options));
    Ok(all)
}

/// Where the verb and the script are: the script follows `--` or the verb, or is the first argument
/// that names one, or the last argument.
fn script(arguments: &[OsString]) -> Option<(usize, usize)> {
    let verb = arguments.iter().skip(1).position(|word| word == "run" || word == "quote")? + 1;
    let dashes = arguments.iter().position(|word| word == "--");
    let is_option = |word: &OsStr| word.to_string_lossy().starts_with('-');
    let script = match dashes {
        Some(dashes) => dashes + 1,
        None if arguments.get(verb + 1).is_some_and(|word| !is_option(word)) => verb + 1,
        None => {
            let is_script =
                |word: &OsString| !is_option(word) && beginning(Path::new(word)).is_some();
            let first = arguments.iter().skip(verb + 1).position(is_script);
            first.map_or(arguments.len() - 1, |place| verb + 1 + place)
        }
    };
    (script > verb && script < arguments.len()).then_some((verb, script))
}

/// The beginning of a text file; `None` if it is no file, or none of text.
fn beginning(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok().filter(|_| path.is_file())?;
    let mut text = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
    text.starts_with(b"#!").then(|| String::from_utf8_lossy(&text).into_owned())
}

/// The options of a Slurm script; says which of them are not followed.
fn slurm_options(path: &Path, words: &[String]) -> Result<Vec<String>, Failure> {
    let made = sbatch::translate(words).map_err(|why| {
        Failure::because(Exit::Usage, format!("{}: #SBATCH {why}", path.display()))
            .with_next("change the line, or write #BURSAR lines: bursar run --help")
    })?;
    if !made.ignored.is_empty() {
        note(&format!("#SBATCH options without a counterpart: {}", made.ignored.join(", ")));
    }
    Ok(made.options)
}

/// A line with a quotation mark that is not closed.
#[derive(Debug, PartialEq)]
struct OpenQuote(String);

/// The words of all lines with a mark before the first command.
fn words_after(text: &str, mark: &str) -> Result<Vec<String>, OpenQuote> {
    let head = text.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    let mut options = Vec::new();
    for line in head.filter_map(|line| line.strip_prefix(mark)) {
        if line.starts_with(char::is_whitespace) {
            options.extend(words(line).ok_or_else(|| OpenQuote(line.trim().to_owned()))?);
        }
    }
    Ok(options)
}

/// Words as a shell splits them: white space separates, quotation marks keep it together.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '"' || c == '\'' => {
                quote = Some(c);
                let _ = word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn lines_before_the_first_command_are_read() {
        let text = "#!/bin/sh\n#BURSAR --gpus H100:4 --time 2h\n# more\n\n\
            #BURSAR --name 'two words'\n#BURSARS no\nsrun\n#BURSAR --class high\n";
        let expected = ["--gpus", "H100:4", "--time", "2h", "--name", "two words"];
        assert_eq!(words_after(text, MARK), Ok(expected.map(str::to_owned).to_vec()));
        assert_eq!(
            words_after("#BURSAR --name 'x\n", MARK),
            Err(OpenQuote("--name 'x".to_owned()))
        );
    }

    #[test]
    fn the_script_is_found_where_people_write_it() {
        assert_eq!(script(&of("bursar run train.sh 3")), Some((1, 2)));
        assert_eq!(script(&of("bursar run -a acme train.sh")), Some((1, 4)));
        assert_eq!(script(&of("bursar run -a acme -- train.sh 3")), Some((1, 5)));
        assert_eq!(script(&of("bursar --server x quote t.sh")), Some((3, 4)));
        assert_eq!(script(&of("bursar ls")), None);
        assert_eq!(script(&of("bursar run")), None);
        assert_eq!(script(&of("bursar run --")), None);
    }

    #[test]
    fn options_of_the_script_go_before_those_of_the_command_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a folder").join("train.sh");
        std::fs::write(&path, "#!/bin/sh\n#BURSAR -t 2h\ntrue\n").expect("written");
        let script = path.display().to_string();
        let arguments = of(&format!("bursar run -t 1h -- {script} 3"));
        let expected = of(&format!("bursar run -t 2h -t 1h -- {script} 3"));
        assert_eq!(expanded(arguments).expect("a script"), expected);
        let slurm = "#!/bin/sh\n#SBATCH --gres=gpu:h100:4 -t 2:00:00\nsrun x\n";
        std::fs::write(&path, slurm).expect("written");
        let expected = of(&format!("bursar run --gpus h100:4 --time 7200s {script}"));
        assert_eq!(expanded(of(&format!("bursar run {script}"))).expect("a script"), expected);
        std::fs::write(&path, "#!/bin/sh\n#SBATCH --ntasks=8\ntrue\n").expect("written");
        assert!(expanded(of(&format!("bursar run {script}"))).is_err());
        let plain = of("bursar run -t 1h -- no-such-file");
        assert_eq!(expanded(plain.clone()).expect("no script"), plain);
    }
}
