// Package operate tests operators' work on a cluster of real processes: the commands of
// docs/deploy.md and docs/security.md, rolling restarts under load, and restores with
// followers of the old log.
package operate
