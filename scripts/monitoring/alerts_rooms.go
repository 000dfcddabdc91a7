package main

// roomAlerts are about disks.
func roomAlerts() []alert {
	return []alert{
		{
			name: "RutterDiskLow", expr: `rutter_store_disk_low == 1`, after: "1m", severity: ticket,
			summary: "Server {{ $labels.instance }} is below its low water of disk.",
			means:   "If a majority of the servers has no room, what grows is refused (507) while deletions go on.",
			look:    "rutter cluster status; df -h /var/lib/rutter",
			do:      "Make room, or lower the retention: rutter cluster retention.",
			cases:   ofServer("rutter_store_disk_low", "0x10", "1x10", "5m"),
		},
		{
			name: "RutterDiskFull", expr: `rutter_store_disk_full == 1`, after: "0m", severity: page,
			summary: "Server {{ $labels.instance }} is in its reserve of disk and takes no entries.",
			means:   "This server follows no more. Two such servers of three stop writes.",
			look:    "rutter cluster status; df -h /var/lib/rutter",
			do:      "Make room now; docs/deploy.md, a full disk.",
			cases:   ofServer("rutter_store_disk_full", "0x10", "1x10", "1m"),
		},
		{
			name: "RutterNoRoom", expr: `max(rutter_store_no_room) == 1`, after: "1m", severity: page,
			summary: "The cluster refuses what grows: too few servers have room.",
			means:   "Creates and updates are refused with 507; deletions and nodes' states go on.",
			look:    "rutter cluster status",
			do:      "Make room on the servers that status names.",
			cases: []example{
				{series: three("rutter_store_no_room", "1x10", "0x10", "0x10"), at: "5m", fires: []map[string]string{{}}},
				{series: three("rutter_store_no_room", "0x10", "0x10", "0x10"), at: "5m"},
			},
		},
		{
			name: "RutterDiskWillBeFull", expr: `predict_linear(rutter_store_disk_usable_bytes[6h], 3 * 86400) < rutter_store_disk_low_water_bytes and rutter_store_disk_low == 0`, after: "1h", severity: ticket,
			summary: "The disk of {{ $labels.instance }} reaches its low water within three days.",
			means:   "At the rate of the last six hours.",
			look:    "rutter cluster status; rutter cluster retention",
			do:      "Make room, or lower the retention.",
			cases: []example{
				{series: []series{{"rutter_store_disk_usable_bytes" + selector(server), "100000000000-10000000x600"}, {"rutter_store_disk_low_water_bytes" + selector(server), "70000000000x600"}, {"rutter_store_disk_low" + selector(server), "0x600"}}, at: "9h", fires: []map[string]string{server}},
				{series: []series{{"rutter_store_disk_usable_bytes" + selector(server), "100000000000-10000x600"}, {"rutter_store_disk_low_water_bytes" + selector(server), "70000000000x600"}, {"rutter_store_disk_low" + selector(server), "0x600"}}, at: "9h"},
			},
		},
		{
			name: "RutterDiskHangs", expr: `rutter_store_disk_operation_age_seconds > 5`, after: "0m", severity: page,
			summary: "The disk of {{ $labels.instance }} has not answered for {{ $value | humanizeDuration }}.",
			shows:   "30s",
			means:   "A leader whose disk hangs gives its place away; after disk-patience the server ends.",
			look:    "rutter cluster status; dmesg",
			do:      "Mend or replace the disk; docs/deploy.md, the loss of one.",
			cases:   ofServer("rutter_store_disk_operation_age_seconds", "0.2x10", "0 0 12 30 60 60", "3m"),
		},
	}
}

// timeAlerts are about clocks and certificates.
func timeAlerts() []alert {
	return []alert{
		{
			name: "RutterClock", expr: `rutter_store_clock_alarms > 0`, after: "1m", severity: ticket,
			summary: "{{ $labels.instance }} sees something wrong with the servers' clocks.",
			means:   "One clock is ahead of or behind the one that the servers agree on. The cluster's time does not follow it.",
			look:    "rutter cluster time",
			do:      "Mend NTP or PTP on the server that it names.",
			cases:   ofServer("rutter_store_clock_alarms", "0x10", "1x10", "5m"),
		},
		{
			name: "RutterCertificateEnds", expr: `min by (instance, job, authority, subject) (rutter_tls_not_after_seconds) - time() < 7 * 86400`, after: "10m", severity: ticket,
			summary: "The certificate of {{ $labels.subject }} at {{ $labels.instance }} ends in {{ $value | humanizeDuration }}.",
			shows:   "5d 18h 33m 20s",
			means:   "Those of nodes and servers renew themselves long before that: something keeps it from doing so. Who connects with it after its end is refused.",
			look:    "rutter cert list; journalctl -u rutter-server -g certificate",
			do:      "docs/security.md, renewal.",
			cases: []example{
				{series: []series{{"rutter_tls_not_after_seconds" + selector(more(server, "authority", "cluster", "subject", "s1")), "500000x30"}}, at: "20m", fires: []map[string]string{more(server, "authority", "cluster", "subject", "s1")}},
				{series: []series{{"rutter_tls_not_after_seconds" + selector(more(server, "authority", "cluster", "subject", "s1")), "5000000x30"}}, at: "20m"},
			},
		},
		{
			name: "RutterCertificateEndsToday", expr: `min by (instance, job, authority, subject) (rutter_tls_not_after_seconds) - time() < 86400`, after: "10m", severity: page,
			summary: "The certificate of {{ $labels.subject }} at {{ $labels.instance }} ends in {{ $value | humanizeDuration }}.",
			shows:   "13h 33m 20s",
			means:   "As RutterCertificateEnds, and there is a day left at most.",
			look:    "rutter cert list",
			do:      "docs/security.md, renewal.",
			cases: []example{
				{series: []series{{"rutter_tls_not_after_seconds" + selector(more(server, "authority", "cluster", "subject", "s1")), "50000x30"}}, at: "20m", fires: []map[string]string{more(server, "authority", "cluster", "subject", "s1")}},
				{series: []series{{"rutter_tls_not_after_seconds" + selector(more(server, "authority", "cluster", "subject", "s1")), "500000x30"}}, at: "20m"},
			},
		},
	}
}

// backupAlerts are about backups, and about anything else.
func backupAlerts() []alert {
	backup := []series{
		{"rutter_backup_interval_seconds" + selector(server), "3600x600"},
	}
	return []alert{
		{
			name: "RutterBackupOld", expr: `time() - rutter_backup_last_verified_timestamp_seconds > 2.5 * rutter_backup_interval_seconds and rutter_backup_interval_seconds > 0`, after: "5m", severity: ticket,
			summary: "The last verified backup of {{ $labels.instance }} is {{ $value | humanizeDuration }} old.",
			shows:   "3h 59m 0s",
			means:   "More than two of its scheduled backups were not made, or could not be restored to check them.",
			look:    "rutter snapshot schedule",
			do:      "What it names: the folder, its disk, its room. docs/backup.md.",
			cases: []example{
				{series: append([]series{{"rutter_backup_last_verified_timestamp_seconds" + selector(server), "60x600"}}, backup...), at: "4h", fires: []map[string]string{server}},
				{series: append([]series{{"rutter_backup_last_verified_timestamp_seconds" + selector(server), "0+60x600"}}, backup...), at: "4h"},
				{series: []series{{"rutter_backup_last_verified_timestamp_seconds" + selector(server), "60x600"}, {"rutter_backup_interval_seconds" + selector(server), "0x600"}}, at: "4h"},
			},
		},
		{
			name: "RutterBackupFails", expr: `increase(rutter_backup_failures_total[1h]) > 0`, after: "0m", severity: ticket,
			summary: "A backup of {{ $labels.instance }} failed.",
			means:   "The one before is kept; the next is tried at its time.",
			look:    "rutter snapshot schedule",
			do:      "What it names.",
			cases:   ofServer("rutter_backup_failures_total", "2x60", "0x10 1x60", "30m"),
		},
		{
			name: "RutterBackupDamaged", expr: `rutter_backups_damaged > 0`, after: "0m", severity: ticket,
			summary: "Kept backups of {{ $labels.instance }} are damaged.",
			means:   "They were good when they were made. Their disk, or what is between it and the server, changes what it holds.",
			look:    "rutter snapshot schedule",
			do:      "rutter snapshot now; look at the disk of the folder; then delete the files that are named. docs/backup.md.",
			cases:   ofServer("rutter_backups_damaged", "0x60", "1x60", "30m"),
		},
		{
			name: "RutterNoBackups", expr: `sum(rutter_backup_interval_seconds) == 0`, after: "1d", severity: ticket,
			summary: "No server makes backups.",
			means:   "Three disks hold the log and nothing else does. A mistake of an operator is taken back by rutter log revert; the loss of three machines is not.",
			look:    "rutter snapshot schedule",
			do:      "docs/backup.md.",
			cases: []example{
				{series: three("rutter_backup_interval_seconds", "0x2000", "0x2000", "0x2000"), at: "25h", fires: []map[string]string{{}}},
				{series: three("rutter_backup_interval_seconds", "0x2000", "3600x2000", "0x2000"), at: "25h"},
			},
		},
		{
			name: "RutterWarnings", expr: `rutter_warnings > 0`, after: "15m", severity: ticket,
			summary: "Server {{ $labels.instance }} names {{ $value }} things to see to.",
			shows:   "2",
			means:   "Anything that /readyz?verbose lists, also what has no alert of its own.",
			look:    "curl -s https://SERVER:7420/readyz?verbose; rutter cluster status",
			do:      "What it says of each.",
			cases:   ofServer("rutter_warnings", "0x30", "2x30", "20m"),
		},
	}
}
