// Package fit holds tests under routers and frameworks, and below SDKs, of
// others. It is a package of its own, so that no other needs them.
package fit
