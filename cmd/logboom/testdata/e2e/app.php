<?php
// One line of 10,000 bytes a request by Monolog, as LOG_CHANNEL=stderr does.
require '/usr/share/php/Monolog/autoload.php';

use Monolog\Formatter\LineFormatter;
use Monolog\Handler\StreamHandler;
use Monolog\Logger;

$handler = new StreamHandler('php://stderr');
$handler->setFormatter(new LineFormatter("%message%\n", null, true));
$log = new Logger('app', [$handler]);
$log->info('app ' . substr(str_repeat(bin2hex(random_bytes(8)) . ' ', 600), 0, 9995));
// A request takes its time. Faster ones fill the pipe whenever the daemon gets
// no processor for a moment, and a full pipe mixes up what two workers write:
// more than PIPE_BUF bytes at a time (pipe(7)).
usleep(4000);
echo "ok\n";
