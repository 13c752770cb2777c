// The program of somebody else's crate: a record and a checkpointer of its own behind the worker.
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError, Interrupter};

#[derive(Debug, PartialEq)]
struct MyRecord {
    weights: HashMap<String, f32>,
}

struct TextFiles(PathBuf);

impl TextFiles {
    fn path(&self, epoch: usize) -> PathBuf {
        self.0.join(format!("{epoch}.txt"))
    }
}

impl Checkpointer<MyRecord> for TextFiles {
    fn save(&self, epoch: usize, record: MyRecord) -> Result<(), CheckpointerError> {
        let lines = record.weights.iter().map(|(name, weight)| format!("{name} {weight}\n"));
        Ok(fs::write(self.path(epoch), lines.collect::<String>())?)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        Ok(fs::remove_file(self.path(epoch))?)
    }

    fn restore(&self, epoch: usize) -> Result<MyRecord, CheckpointerError> {
        let text = fs::read_to_string(self.path(epoch))?;
        let malformed = || CheckpointerError::Unknown("not a record".to_owned());
        let weight = |line: &str| {
            let (name, weight) = line.split_once(' ')?;
            Some((name.to_owned(), weight.parse().ok()?))
        };
        let weights = text.lines().map(weight).collect::<Option<_>>().ok_or_else(malformed)?;
        Ok(MyRecord { weights })
    }
}

fn main() -> Result<(), CheckpointerError> {
    let record = |weight| MyRecord { weights: HashMap::from([("w".to_owned(), weight)]) };
    let interrupter = Interrupter::new();
    let checkpointer: AsyncCheckpointer<MyRecord> =
        AsyncCheckpointer::new(TextFiles(std::env::temp_dir())).with_interrupter(interrupter.clone());
    checkpointer.save(1, record(0.5))?;
    checkpointer.save(2, record(0.25))?;
    assert_eq!(checkpointer.restore(1)?, record(0.5));
    checkpointer.delete(1)?;
    assert_eq!(checkpointer.restore(2)?, record(0.25));
    assert!(matches!(checkpointer.restore(1), Err(CheckpointerError::IOError(_))));
    checkpointer.close()?;
    assert!(!interrupter.should_stop());
    println!("saved, restored, deleted");
    Ok(())
}
