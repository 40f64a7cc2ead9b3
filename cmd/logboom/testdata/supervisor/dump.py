# Prints, as JSON, what supervisord makes of a configuration. Users and folders
# that it names need not be there.
import json, shlex, sys
from supervisor import datatypes, options

datatypes.existing_dirpath = options.existing_dirpath = lambda path: path
datatypes.existing_directory = options.existing_directory = lambda path: path
datatypes.name_to_uid = options.name_to_uid = lambda name: 0
options.ServerOptions.get_plugins = lambda *args: []

read = options.ServerOptions()
read.realize(["-n", "-c", sys.argv[1]])
found = {}
for group in read.process_group_configs:
    for p in group.process_configs:
        if type(p) is not options.ProcessConfig:
            continue
        found[p.name] = {
            "command": shlex.split(p.command), "directory": p.directory or "", "environment": p.environment or {},
            "autostart": p.autostart, "autorestart": {
                False: "false", datatypes.RestartUnconditionally: "true", datatypes.RestartWhenExitUnexpected: "unexpected",
            }[p.autorestart],
            "startsecs": p.startsecs, "startretries": p.startretries, "exitcodes": p.exitcodes,
            "stopsignal": int(p.stopsignal), "stopwaitsecs": p.stopwaitsecs, "stopasgroup": p.stopasgroup,
            "redirect_stderr": p.redirect_stderr,
        }
json.dump(found, sys.stdout)
