// Which program this is: version, commit ("+" when built from changed sources), compiler and build type.
#pragma once

namespace lockstep {
const char* version();
const char* commit();
const char* compiler();
}  // namespace lockstep
