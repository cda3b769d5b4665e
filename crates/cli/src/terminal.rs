//! What a person sees: escaped text, colours, quantities and moments.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{SystemTime, UNIX_EPOCH};

/// A text from a sandbox or about one, with everything escaped that could move the cursor, change the terminal or make
/// a line look like another: control characters, and those that change the direction or take no room.
pub fn escape(text: &str) -> String {
    escaped(text, |_| false)
}

/// The same for several lines of text: line feeds and tabs stay.
pub fn escape_lines(text: &str) -> String {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            _ if stays(character) => clean.push(character),
            '\n' | '\r' | '\t' => clean.extend(character.escape_default()),
            _ if character.is_control() || is_invisible(character) => {
                // Writing to a string can't fail.
                let _ = write!(clean, "\\u{{{:x}}}", u32::from(character));
            }
            _ => clean.push(character),
        }
    }
    clean
}

fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// How a piece of text stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warning,
    Special,
}

/// Colours, where they are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// Colours only for a terminal, and not when the user says no (<https://no-color.org>).
    pub fn on(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: !refused && !dumb && stream.is_terminal() }
    }

    /// No colours.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { on: false }
    }

    /// The text in its style.
    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            _ if !self.on => return text.to_owned(),
            Style::Plain => return text.to_owned(),
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Bad => "1;31",
            Style::Warning => "33",
            Style::Special => "36",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A number of bytes in a few characters: `512 B`, `1.5 KiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A span of time in a few characters: `0.3s`, `12s`, `5m`, `3h`, `9d`.
pub fn span(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        0 => format!("{:.1}s", milliseconds as f64 / 1000.0),
        seconds @ 1..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// A moment in UTC, to the minute: `2026-11-16 08:30`. Howard Hinnant's `civil_from_days` counts years from March on, so
/// that the leap day comes last.
pub fn moment(seconds: i64) -> String {
    // Beyond these a year has more than four digits; a hostile file may say so.
    let seconds = seconds.clamp(-62_135_596_800, 253_402_300_799);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3_600, second % 3_600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_a_sandbox_moves_the_cursor() {
        assert_eq!(escape("a\x1b[2Jb\r\n\u{7f}\u{9b}c"), "a\\u{1b}[2Jb\\r\\n\\u{7f}\\u{9b}c");
        assert_eq!(escape("cod.exe\u{202e}gpj"), "cod.exe\\u{202e}gpj");
        assert_eq!(escape("zoë 日本"), "zoë 日本");
        assert_eq!(escape_lines("a\tb\nc\x07"), "a\tb\nc\\u{7}");
    }

    #[test]
    fn numbers_are_short() {
        for (count, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(bytes(count), text);
        }
        for (ms, text) in [(300, "0.3s"), (119_000, "119s"), (120_000, "2m"), (7_200_000, "2h"), (200_000_000, "2d")] {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
            (-1, "1969-12-31 23:59"),
            (i64::MAX, "9999-12-31 23:59"),
        ] {
            assert_eq!(moment(seconds), text);
        }
    }
}
