//! What of others' words may reach a person's terminal.

/// A text on one line that moves neither the cursor of a terminal nor the words of the line: clusters write some of what is
/// shown.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { ' ' }).collect()
}

/// Whether it neither controls a terminal, nor ends a line, nor turns the direction of what follows (Unicode Standard Annex #9,
/// 2).
pub(crate) fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_turns_a_line_is_blank() {
        assert_eq!(printable("a\u{1b}[2Jb\r\nc\u{9b}d"), "a [2Jb  c d");
        assert_eq!(printable("x\u{202e}y\u{2066}z\u{200f}\u{61c}\u{2028}"), "x y z   ");
        assert_eq!(printable("Müllheim, 東京 — naïve"), "Müllheim, 東京 — naïve");
    }
}
