#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real programs with some seconds of work for each, as a distribution ships them. In a folder of its own:
#   programs.sh needs NAME     commands that must be there
#   programs.sh prepare NAME   make its input, not to be measured
#   programs.sh run NAME       the work
set -eu
here=$(dirname "$(readlink -f "$0")")

data() { # a file of 16 MB that packs well, but not too well
  seq 1 4000000 | awk '{ printf "%d %x line of text %d\n", $1, ($1 * 40503) % 65536, ($1 * $1) % 9973 }' | head -c 16777216 >data
}

nobody='setpriv --reuid=65534 --regid=65534 --clear-groups'
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)

case "$2.$1" in
python3.needs) echo /usr/bin/python3 ;;
python3.run) exec /usr/bin/python3 "$here/work.py" ;;
perl.needs) echo perl ;;
perl.run) exec perl "$here/work.pl" ;;
node.needs) echo /usr/bin/node ;;
node.run) exec /usr/bin/node "$here/work.js" ;;
ruby.needs) echo ruby ;;
ruby.run) exec ruby "$here/work.rb" ;;
php.needs) echo php ;;
php.run) exec php "$here/work.php" ;;
java*.needs) echo java javac ;;
java*.prepare) javac -d . "$here/Work.java" ;;
java-interpreter.run) exec java -Xint Work 400 ;;
java-jit.run) exec java Work 20000 ;;
java-jit-with-frame-pointers.run) exec java -XX:+PreserveFramePointer Work 20000 ;;
postgres.needs) echo setpriv "$postgres/postgres" ;;
postgres.prepare)
  chmod 755 .
  mkdir db
  chown 65534 db
  $nobody "$postgres/initdb" -D db -A trust -U u
  ;;
postgres.run)
  chmod 777 .
  $nobody "$postgres/postgres" -D db -k "$PWD" -h '' -F >log 2>&1 &
  until "$postgres/pg_isready" -q -h "$PWD" -U u; do sleep 0.2; done
  "$postgres/dropdb" --if-exists -h "$PWD" -U u b
  "$postgres/createdb" -h "$PWD" -U u b
  "$postgres/pgbench" -q -i -h "$PWD" -U u b >/dev/null 2>&1
  "$postgres/pgbench" -n -h "$PWD" -U u -T 4 -c 2 b >/dev/null 2>&1
  kill -INT "$(head -n 1 db/postmaster.pid)"
  wait
  ;;
redis.needs) echo redis-server redis-benchmark ;;
redis.run)
  redis-server --port 0 --unixsocket "$PWD/socket" --save '' >/dev/null &
  until [ -S socket ]; do sleep 0.1; done
  redis-benchmark -q -s "$PWD/socket" -n 60000 -P 4 -t set,get,lpush,lrange_300 >/dev/null
  kill $!
  wait
  ;;
nginx.needs) echo nginx curl ;;
nginx.prepare)
  sed "s#FOLDER#$PWD#" "$here/nginx.conf" >conf
  chmod 755 .
  data
  head -c 300000 data >page.html
  chmod 644 page.html
  yes "url = http://x/page.html
output = /dev/null" | head -n 1200 >urls
  ;;
nginx.run)
  nginx -c "$PWD/conf" &
  until [ -S socket ]; do sleep 0.1; done
  curl -s --compressed --unix-socket socket -K urls
  kill -QUIT $!
  wait
  ;;
ffmpeg.needs) echo ffmpeg ;;
ffmpeg.run) exec ffmpeg -loglevel error -f lavfi -i testsrc=size=640x360:rate=25 -t 10 -c:v libx264 -f null - ;;
xz.needs) echo xz ;;
xz.prepare) data && truncate -s 3M data ;;
xz.run) exec xz -c data >/dev/null ;;
zstd.needs) echo zstd ;;
zstd.prepare) data ;;
zstd.run) exec zstd -q -12 -c data >/dev/null ;;
bzip2.needs) echo bzip2 ;;
bzip2.prepare) data ;;
bzip2.run) exec bzip2 -c data >/dev/null ;;
cc1plus.needs) echo g++ ;;
cc1plus.run) exec g++ -O2 -S -o /dev/null "$here/headers.cc" ;;
clang.needs) echo clang++ ;;
clang.run) exec clang++ -O2 -S -o /dev/null "$here/headers.cc" ;;
ld.needs) echo gcc ld ;;
ld.prepare)
  seq 1 60000 | awk '{ printf "int f%d(int x) { static char s[] = \"%d\"; return x + s[0]; }\n", $1, $1 }' >work.c
  echo 'int main(void) { return f1(1); }' >>work.c
  gcc -O0 -g -ffunction-sections -c work.c
  ;;
ld.run) for _ in 1 2 3; do gcc -o out work.o; done ;;
git.needs) echo git ;;
git.prepare)
  data
  truncate -s 6M data
  git init -q .
  git config user.name a
  git config user.email a@localhost
  git add data
  git commit -q -m 0
  for i in 1 2 3; do
    sed -i "s/${i}1/x/" data
    git commit -q -a -m $i
  done
  ;;
git.run)
  git log -p --stat >/dev/null
  git gc -q --aggressive
  ;;
sqlite3.needs) echo sqlite3 ;;
sqlite3.run) exec sqlite3 :memory: <"$here/work.sql" >/dev/null ;;
openssl.needs) echo openssl ;;
openssl.run)
  for way in sha256 rsa2048 '-evp aes-256-gcm' '-evp chacha20-poly1305'; do
    openssl speed -seconds 1 -bytes 4096 $way >/dev/null 2>&1
  done
  ;;
qemu.needs) echo qemu-aarch64 aarch64-linux-gnu-gcc ;;
qemu.prepare) aarch64-linux-gnu-gcc -O2 -static -o work "$here/sort.c" ;;
qemu.run) exec qemu-aarch64 ./work ;;
static-musl.needs) echo musl-gcc ;;
static-musl.prepare) musl-gcc -O2 -static -o work "$here/sort.c" ;;
static-musl.run) exec ./work ;;
go.needs) echo go ;;
go.prepare) HOME=$PWD GOFLAGS=-buildvcs=false go build -o work "$here/work.go" ;;
go.run) exec ./work ;;
rust.needs) echo rustc ;;
rust.prepare) rustc -O -C panic=abort -o work "$here/work.rs" ;;
rust.run) exec ./work ;;
*.prepare) ;;
*)
  echo "programs.sh: no program '$2'" >&2
  exit 2
  ;;
esac
