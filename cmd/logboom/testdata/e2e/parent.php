<?php
// A parent as RoadRunner is one: it has a pipe to each of its two workers and
// passes on what they write, whole lines at a time: parent.php SECONDS.
$pipes = $workers = $rest = [];
foreach (['w1', 'w2'] as $name) {
    $command = [PHP_BINARY, __DIR__ . '/worker.php', $name, $argv[1]];
    $workers[$name] = proc_open($command, [2 => ['pipe', 'w']], $ends);
    stream_set_blocking($ends[2], false);
    $pipes[$name] = $ends[2];
    $rest[$name] = '';
}
while ($pipes) {
    $ready = $pipes;
    $none = null;
    if (stream_select($ready, $none, $none, null) === false) {
        exit(1);
    }
    foreach ($ready as $name => $pipe) {
        $rest[$name] .= stream_get_contents($pipe, 1 << 18);
        $whole = strrpos($rest[$name], "\n");
        if ($whole !== false) {
            $text = substr($rest[$name], 0, $whole + 1);
            $rest[$name] = substr($rest[$name], $whole + 1);
            if (fwrite(STDERR, $text) !== strlen($text)) {
                exit(2);
            }
        }
        if (feof($pipe)) {
            unset($pipes[$name]);
            proc_close($workers[$name]);
        }
    }
}
