// A stand-in for NVTX: no profiler listens; emulation::take_nvtx_names() says what was pushed.
#pragma once

#include <cstdint>

#define NVTX_VERSION 3

typedef std::uint64_t nvtxRangeId_t;

int nvtxRangePushA(const char* message);
int nvtxRangePop();
nvtxRangeId_t nvtxRangeStartA(const char* message);
void nvtxRangeEnd(nvtxRangeId_t id);
void nvtxMarkA(const char* message);
void nvtxNameOsThreadA(std::uint32_t thread, const char* name);

#define nvtxRangePush nvtxRangePushA
#define nvtxMark nvtxMarkA
#define nvtxNameOsThread nvtxNameOsThreadA
