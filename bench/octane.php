<?php
// A request that logs one long line to the stream that LOG_TO names.
require '/usr/share/php/Monolog/autoload.php';

$log = new Monolog\Logger('octane');
$log->pushHandler(new Monolog\Handler\StreamHandler(getenv('LOG_TO')));
$log->info(str_repeat('x', 10000));
echo 'hello';
