//! Texts that mean something: times, base64 and quantities.

pub(crate) fn is_time(text: &str) -> bool {
    text.is_empty() || text.parse::<jiff::Timestamp>().is_ok()
}

pub(crate) fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    // Go's decoder skips line breaks.
    if text.contains(['\n', '\r']) {
        return STANDARD.decode(text.replace(['\n', '\r'], "")).is_ok();
    }
    STANDARD.decode(text).is_ok()
}

/// Whether the text is a quantity: a decimal number with an optional suffix (`500m`, `1Gi`, `1e3`).
pub(crate) fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 || number.len() - digits > 1 {
        return false;
    }
    match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        exponent => exponent.strip_prefix(['e', 'E']).is_some_and(|digits| digits.parse::<i32>().is_ok()),
    }
}
