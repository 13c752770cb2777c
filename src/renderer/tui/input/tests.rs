use std::io::Write;
use std::os::unix::net::UnixStream;

use super::*;

fn events(bytes: &[u8]) -> Vec<Event> {
    Input::default().take(bytes)
}

fn keys(bytes: &[u8]) -> Vec<KeyCode> {
    let code = |event: Event| match event {
        Event::Key(key) => key.code,
        other => panic!("{other:?}"),
    };
    events(bytes).into_iter().map(code).collect()
}

#[test]
fn characters_are_keys() {
    assert_eq!(
        keys("qä€😀".as_bytes()),
        ['q', 'ä', '€', '😀'].map(KeyCode::Char)
    );
    assert_eq!(
        events(b"Q"),
        [modified(KeyCode::Char('Q'), KeyModifiers::SHIFT)]
    );
    assert_eq!(
        keys(b"\xff\xc3(q"),
        ['(', 'q'].map(KeyCode::Char),
        "bytes that are none"
    );
    assert_eq!(
        events(b"\x03\x1a\x1c\x00"),
        [b'c', b'z', b'4', b' '].map(control)
    );
    let names = [
        KeyCode::Enter,
        KeyCode::Enter,
        KeyCode::Tab,
        KeyCode::Backspace,
    ];
    assert_eq!(keys(b"\r\n\t\x7f"), names);
}

#[test]
fn sequences_are_keys() {
    let arrows = [KeyCode::Up, KeyCode::Down, KeyCode::Right, KeyCode::Left];
    assert_eq!(keys(b"\x1b[A\x1b[B\x1b[C\x1b[D"), arrows);
    assert_eq!(keys(b"\x1bOA\x1bOB\x1bOC\x1bOD"), arrows);
    let pages = [
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
    ];
    assert_eq!(keys(b"\x1b[5~\x1b[6~\x1b[1~\x1b[F"), pages);
    assert_eq!(
        events(b"\x1b[Z"),
        [modified(KeyCode::BackTab, KeyModifiers::SHIFT)]
    );
    assert_eq!(
        events(b"\x1b[1;5C"),
        [modified(KeyCode::Right, KeyModifiers::CONTROL)]
    );
    assert_eq!(
        events(b"\x1bx"),
        [modified(KeyCode::Char('x'), KeyModifiers::ALT)]
    );
    assert_eq!(
        keys(b"\x1b[?1;2c\x1b[99~q"),
        [KeyCode::Char('q')],
        "answers are no keys"
    );
}

#[test]
fn an_escape_alone_is_a_key_once_nothing_follows() {
    let (mut here, there) = UnixStream::pair().unwrap();
    there.set_nonblocking(true).unwrap();
    let mut input = Input::default();
    here.write_all(b"\x1b").unwrap();
    assert!(input.read(&there).unwrap().is_empty());
    assert_eq!(input.read(&there).unwrap(), [key(KeyCode::Esc)]);

    here.write_all(b"\x1b").unwrap();
    assert!(input.read(&there).unwrap().is_empty());
    here.write_all(b"[A").unwrap();
    assert_eq!(input.read(&there).unwrap(), [key(KeyCode::Up)]);
    assert!(input.read(&there).unwrap().is_empty());

    drop(here);
    assert!(input.read(&there).is_err(), "the terminal is gone");
    assert_eq!(keys(b"\x1b\x1b[A"), [KeyCode::Esc, KeyCode::Up]);
}

#[test]
fn the_mouse_is_understood_in_both_ways_of_saying_it() {
    let at = |kind, column, row| {
        let modifiers = KeyModifiers::NONE;
        Event::Mouse(MouseEvent {
            kind,
            column,
            row,
            modifiers,
        })
    };
    let (down, up) = (
        MouseEventKind::Down(MouseButton::Left),
        MouseEventKind::Up(MouseButton::Left),
    );
    assert_eq!(
        events(b"\x1b[<0;10;5M\x1b[<0;300;5m"),
        [at(down, 9, 4), at(up, 299, 4)]
    );
    assert_eq!(
        events(b"\x1b[M *%\x1b[M#*%"),
        [at(down, 9, 4), at(up, 9, 4)]
    );
    let wheel = [
        at(MouseEventKind::ScrollUp, 0, 0),
        at(MouseEventKind::ScrollDown, 0, 0),
    ];
    assert_eq!(events(b"\x1b[<64;1;1M\x1b[<65;1;1M"), wheel);
    assert_eq!(events(b"\x1b[M`!!\x1b[Ma!!"), wheel);
    let drag = MouseEventKind::Drag(MouseButton::Right);
    assert_eq!(events(b"\x1b[<34;2;3M"), [at(drag, 1, 2)]);
    assert!(events(b"\x1b[<0;1M").is_empty(), "half of one");
}

#[test]
fn what_is_pasted_is_no_keys() {
    let whole = b"a\x1b[200~qk\x1b[A\x1b[201~b";
    for cut in 0..=whole.len() {
        let mut input = Input::default();
        let mut seen = input.take(&whole[..cut]);
        seen.extend(input.take(&whole[cut..]));
        assert_eq!(
            seen,
            [key(KeyCode::Char('a')), key(KeyCode::Char('b'))],
            "cut at {cut}"
        );
    }
    let mut input = Input::default();
    assert!(input.take(b"\x1b[200~").is_empty());
    assert!(input.nothing_more().is_empty());
    assert!(
        input.take(&[b'q'; 5000]).is_empty(),
        "a long one, which pauses"
    );
    assert!(input.bytes.len() < 10, "and is not kept");
    for _ in 0..PATIENCE {
        assert!(input.nothing_more().is_empty());
    }
    assert_eq!(
        input.take(b"q"),
        [key(KeyCode::Char('q'))],
        "its end was lost"
    );
}

#[test]
fn nonsense_is_not_kept() {
    let mut input = Input::default();
    input.take(b"\x1b[");
    input.take(&[b'1'; 1000]);
    assert!(input.bytes.is_empty());
    assert_eq!(input.take(b"q"), [key(KeyCode::Char('q'))]);
}
