//! Normal work in a jail.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Case, World, attempt, skip};

pub(crate) const CASES: &[Case] = &[
    ("shells_work", shells),
    ("python_works", python),
    ("python_installs_packages", python_packages),
    ("git_works", git),
    ("compilers_work", compilers),
    ("node_works", node),
    ("archives_work", archives),
    ("terminals_work", terminals),
];

/// Runs a shell script in a jail, with a temporary workspace and with one on the host.
fn script(world: &World, needs: &str, script: &str) {
    if !["/usr/bin", "/usr/local/bin", "/bin"].iter().any(|place| Path::new(place).join(needs).exists()) {
        skip(&format!("{needs} is not installed"));
    }
    for workspace in [None, Some(world.directory("work"))] {
        let mut jail = world.jail();
        jail.workspace = workspace;
        attempt(&jail, || {
            let output = Command::new("/bin/sh").args(["-euc", script]).stdin(Stdio::null()).output().unwrap();
            match output.status.success() {
                true => Ok(()),
                false => Err(format!(
                    "{}\n{}{}",
                    output.status,
                    String::from_utf8_lossy(&output.stdout),
                    String::from_utf8_lossy(&output.stderr)
                )),
            }
        });
    }
}

fn shells(world: &World) {
    script(
        world,
        "bash",
        "bash -c 'set -m; sleep 0.01 & wait; f() { cat <(echo hi); }; [ \"$(f)\" = hi ]'; seq 1000 | sort -n | tail -1 | grep -qx 1000; [ \"$(whoami)\" = agent ]; [ \"$HOME\" = /workspace ]",
    );
}

const PYTHON: &str = r#"
cat > t.py <<'END'
import asyncio, multiprocessing, os, socket, sqlite3, subprocess, tempfile, threading, mmap, ssl, select
def square(n): return n * n
if __name__ == '__main__':
    threads = [threading.Thread(target=square, args=(n,)) for n in range(20)]
    [t.start() for t in threads]; [t.join() for t in threads]
    assert subprocess.run(['sh', '-c', 'echo hi'], capture_output=True, text=True).stdout == 'hi\n'
    with multiprocessing.Pool(2) as pool: assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    async def main():
        server = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)
        p = await asyncio.create_subprocess_exec('true'); assert await p.wait() == 0
        await asyncio.open_connection(*server.sockets[0].getsockname())
    asyncio.run(main())
    db = sqlite3.connect('x.db'); db.execute('create table t (x)'); db.execute('insert into t values (1)'); db.commit()
    db.execute('pragma journal_mode=wal'); db.execute('insert into t values (2)'); db.commit()
    assert db.execute('select count(*) from t').fetchone() == (2,)
    with tempfile.TemporaryDirectory() as d: open(os.path.join(d, 'x'), 'w').close()
    ssl.create_default_context()
    assert socket.gethostbyname('localhost') == '127.0.0.1'
    assert os.path.expanduser('~') == '/workspace'
END
python3 t.py
"#;

fn python(world: &World) {
    script(world, "python3", PYTHON);
}

/// A package that is built and installed offline.
const PACKAGES: &str = r#"
python3 -m venv --without-pip env 2>/dev/null || exit 0
mkdir -p wheel/demo wheel/demo-1.dist-info
echo 'answer = 42' > wheel/demo/__init__.py
printf 'Metadata-Version: 2.1\nName: demo\nVersion: 1\n' > wheel/demo-1.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > wheel/demo-1.dist-info/WHEEL
printf 'demo/__init__.py,,\ndemo-1.dist-info/METADATA,,\ndemo-1.dist-info/WHEEL,,\ndemo-1.dist-info/RECORD,,\n' > wheel/demo-1.dist-info/RECORD
(cd wheel && python3 -m zipfile -c ../demo-1-py3-none-any.whl demo demo-1.dist-info)
if python3 -m pip --version >/dev/null 2>&1; then
  python3 -m pip --python env/bin/python install --no-index --no-deps ./demo-1-py3-none-any.whl
  env/bin/python -c 'import demo; assert demo.answer == 42'
fi
"#;

fn python_packages(world: &World) {
    script(world, "python3", PACKAGES);
}

fn git(world: &World) {
    script(
        world,
        "git",
        "git init -q r; cd r; git config user.email a@b; git config user.name a; echo x > f; git add f; git commit -qm one; \
         git checkout -qb two; echo y >> f; git commit -qam two; git checkout -q -; git merge -q two; \
         git clone -q . ../copy; [ \"$(git -C ../copy log --oneline | wc -l)\" = 2 ]",
    );
}

fn compilers(world: &World) {
    script(
        world,
        "gcc",
        "printf '#include <stdio.h>\\n#include <pthread.h>\\nstatic void *f(void *p) { return p; }\\n\
         int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); pthread_join(t, 0); puts(\"built\"); }\\n' > a.c; \
         printf 'a: a.c\\n\\tgcc -O1 -pthread -o a a.c\\n' > Makefile; \
         if command -v make >/dev/null; then make -s; else gcc -pthread -o a a.c; fi; [ \"$(./a)\" = built ]",
    );
}

fn node(world: &World) {
    script(
        world,
        "node",
        "node -e \"const {Worker} = require('worker_threads'); const http = require('http'); \
         const s = http.createServer((q, r) => r.end('hi')).listen(0, '127.0.0.1', () => \
         http.get({port: s.address().port}, r => r.on('data', d => { if (String(d) !== 'hi') process.exit(1); \
         require('child_process').execFileSync('true'); \
         new Worker('process.exit(0)', {eval: true}).on('exit', () => process.exit(0)); })));\"",
    );
}

fn archives(world: &World) {
    script(
        world,
        "tar",
        "mkdir d; echo x > d/f; ln -s f d/l; ln d/f d/h; tar czf d.tgz d; rm -r d; tar xzf d.tgz; [ \"$(cat d/l)\" = x ]; cp -a d e; chmod 600 e/f; mkfifo p",
    );
}

fn terminals(world: &World) {
    script(
        world,
        "python3",
        "python3 -c 'import pty, os; assert pty.spawn([\"true\"]) == 0; assert os.path.exists(os.ttyname(os.openpty()[1]))'",
    );
}
