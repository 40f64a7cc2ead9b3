<?php
// A worker that logs lines of 10,000 bytes by Monolog as fast as it can:
// worker.php NAME SECONDS. Each line tells its number, and all of its bytes
// follow from that; the last one, "NAME done COUNT", how many there were.
require '/usr/share/php/Monolog/autoload.php';

use Monolog\Formatter\LineFormatter;
use Monolog\Handler\StreamHandler;
use Monolog\Logger;

[, $name, $seconds] = $argv;
$handler = new StreamHandler('php://stderr');
$handler->setFormatter(new LineFormatter("%message%\n", null, true));
$log = new Logger('app', [$handler]);
$end = microtime(true) + (float) $seconds;
for ($n = 0; microtime(true) < $end; $n++) {
    $log->error(sprintf('%s %09d ', $name, $n) . substr(str_repeat(md5((string) $n), 313), 0, 9999 - strlen($name) - 11));
}
$log->error("$name done $n");
