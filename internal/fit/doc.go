// Package fit holds tests of the server half under routers and frameworks of
// others. It is a package of its own, so that no other needs them.
package fit
