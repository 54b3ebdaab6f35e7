// Program version, commit ("+" if built from modified sources), compiler and build type.
#pragma once

namespace lockstep {
const char* version();
const char* commit();
const char* compiler();
}  // namespace lockstep
