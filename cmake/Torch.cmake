# libtorch for the trainers: the distribution's on a CPU machine, PyTorch's own (CMAKE_PREFIX_PATH) where it is given.
# Optional: without it the workers are built as before, and training cells say why they cannot run.
option(DYNAMICCL_TRAINERS "build the trainers where libtorch is found" ON)
if(DYNAMICCL_TRAINERS AND NOT DYNAMICCL_SANITIZE)
  find_path(DYNAMICCL_TORCH_INCLUDE torch/nn.h PATH_SUFFIXES torch/csrc/api/include)
  find_path(DYNAMICCL_ATEN_INCLUDE ATen/ATen.h)
  find_library(DYNAMICCL_TORCH_LIBRARY torch)
  find_library(DYNAMICCL_TORCH_CPU_LIBRARY torch_cpu)
  find_library(DYNAMICCL_C10_LIBRARY c10)
  if(DYNAMICCL_TORCH_INCLUDE AND DYNAMICCL_ATEN_INCLUDE AND DYNAMICCL_TORCH_LIBRARY AND DYNAMICCL_TORCH_CPU_LIBRARY
     AND DYNAMICCL_C10_LIBRARY)
    add_library(dyn_torch INTERFACE)
    target_include_directories(dyn_torch SYSTEM INTERFACE "${DYNAMICCL_ATEN_INCLUDE}" "${DYNAMICCL_TORCH_INCLUDE}")
    target_link_libraries(dyn_torch INTERFACE "${DYNAMICCL_TORCH_LIBRARY}" "${DYNAMICCL_TORCH_CPU_LIBRARY}"
      "${DYNAMICCL_C10_LIBRARY}" ${CMAKE_DL_LIBS})
    # PyTorch DDP's engine as libtorch 1.x exports it, over Gloo: the live baseline of training runs.
    file(STRINGS "${DYNAMICCL_TORCH_INCLUDE}/torch/version.h" torch_major REGEX "define TORCH_VERSION_MAJOR 1$")
    find_path(DYNAMICCL_TORCH_REDUCER_HEADER torch/csrc/distributed/c10d/reducer.hpp HINTS "${DYNAMICCL_ATEN_INCLUDE}")
    find_path(DYNAMICCL_TORCH_CONTEXT_HEADER torch/csrc/distributed/autograd/context/context.h HINTS "${DYNAMICCL_ATEN_INCLUDE}")
    if(torch_major AND DYNAMICCL_TORCH_REDUCER_HEADER AND TARGET dyn_gloo)
      set(DYNAMICCL_TORCH_HAS_ENGINE ON)
    endif()
  endif()
endif()
