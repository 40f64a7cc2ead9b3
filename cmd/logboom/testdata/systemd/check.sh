#!/bin/bash
# Runs inside the booted system: the unit starts, nginx logs to it, it reloads,
# restarts under load with its sockets held by systemd, is killed, comes back.
# Each step prints "ok" or "FAILED"; the last line says whether all were seen.
set -u
failed=0
step() { # name, command...
	local name=$1
	shift
	if "$@"; then echo "ok $name"; else
		echo "FAILED $name"
		failed=1
	fi
}
eventually() { # seconds, command...
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}
access() { find /var/log/logboom -name 'access-*.log.gz' -exec cat {} +; }
has() { [ "$(access | zcat 2>/dev/null | grep -c "$1")" = "$2" ]; }
main_pid() { systemctl show -P MainPID logboom; }
runs() { [ "$(systemctl is-active logboom)" = active ]; }
came_back() { runs && [ "$(main_pid)" != "$1" ]; }
unpriv() { [ "$(ps -o user= -p "$(main_pid)")" = logboom ]; }
clean_stop() { journalctl -u logboom -o cat | grep '"message":"stopped"' | grep -v '"undelivered":0' >/dev/null && return 1 || return 0; }

step "the unit verifies" systemd-analyze verify /usr/lib/systemd/system/logboom.service /usr/lib/systemd/system/logboom.socket
step "the unit starts" eventually 20 runs
step "it runs as its own user" unpriv
systemctl restart nginx
step "requests by UDP" /load http http://127.0.0.1:80/udp 500
step "their lines" eventually 10 has "GET /udp" 500
step "requests by unix datagram" /load http http://127.0.0.1:81/unix 500
step "their lines" eventually 10 has "GET /unix" 500

pid=$(main_pid)
step "reload" systemctl reload logboom
step "a reload keeps the process" [ "$(main_pid)" = "$pid" ]

/load udp 127.0.0.1:5140 60000 15000 restart-udp &
udp=$!
/load unixgram /run/logboom/nginx.sock 20000 5000 restart-unix &
unix=$!
for i in 1 2 3; do
	sleep 0.8
	step "restart $i under load" systemctl restart logboom
done
wait $udp; step "all was sent" [ $? = 0 ]
wait $unix; step "all was sent to the socket" [ $? = 0 ]
step "nothing is missing, UDP" eventually 15 has restart-udp 60000
step "nothing is missing, unix" eventually 15 has restart-unix 20000

pid=$(main_pid)
kill -9 "$pid"
/load udp 127.0.0.1:5140 1000 20000 killed-udp
step "it comes back within a second" eventually 1 came_back "$pid"
step "what came meanwhile is there" eventually 10 has killed-udp 1000
systemctl stop logboom.socket logboom
step "every stop was clean" clean_stop
step "every file is whole" sh -c 'find /var/log/logboom -name "*.gz" -exec gzip -t {} +'
journalctl -u logboom -o cat | tail -n 40
[ $failed = 0 ] && echo "ALL SEEN" || echo "NOT ALL SEEN"
