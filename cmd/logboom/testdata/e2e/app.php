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
echo "ok\n";
