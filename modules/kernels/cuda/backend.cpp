#include "kernels/cuda.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/later.hpp"
#include "kernels/cuda/products.hpp"
#include "kernels/cuda/recording.hpp"
#include "kernels/cuda/scratch.hpp"

namespace lockstep::kernels {
namespace cuda {

CudaBackend::CudaBackend(std::shared_ptr<CudaContext> context)
    : context_(std::move(context)),
      scratch_(std::make_unique<Scratch>(*context_)),
      products_(std::make_unique<Products>(*context_)),
      slots_(std::make_shared<Slots>(context_)) {}

CudaBackend::~CudaBackend() = default;

Device CudaBackend::device() const {
    return context_->device();
}

void CudaBackend::custom(const CustomWork&, const std::function<void()>& body) {
    body();
}

void CudaBackend::synchronize() {
    context_->synchronize();
}

void CudaBackend::upload(Tensor y, const void* source) {
    context_->upload(y.data(), source, y.bytes());
}

void CudaBackend::download(void* destination, Tensor x) {
    context_->download(destination, x.data(), x.bytes());
}

std::unique_ptr<Later> CudaBackend::read_later(Tensor x) {
    return slots_->read(x.fp64(), static_cast<std::size_t>(x.count()));
}

std::unique_ptr<Recording> CudaBackend::record(const std::function<void()>& issue) {
    return std::make_unique<CudaRecording>(context_, issue);
}

void* CudaBackend::scratch(std::size_t bytes) {
    return scratch_->get(bytes);
}

}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(std::shared_ptr<CudaContext> context) {
    return std::make_unique<cuda::CudaBackend>(std::move(context));
}

}  // namespace lockstep::kernels
