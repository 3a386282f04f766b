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
    # Its CUDA half where it has one: found by the other half once it is loaded, so linked by name whether or not a
    # symbol is used. Gloo goes before it: libtorch carries another Gloo of its own, and one of them must serve all.
    get_filename_component(torch_folder "${DYNAMICCL_TORCH_LIBRARY}" DIRECTORY)
    find_library(DYNAMICCL_TORCH_CUDA_LIBRARY torch_cuda HINTS "${torch_folder}" NO_DEFAULT_PATH)
    find_library(DYNAMICCL_C10_CUDA_LIBRARY c10_cuda HINTS "${torch_folder}" NO_DEFAULT_PATH)
    if(DYNAMICCL_TORCH_CUDA_LIBRARY AND DYNAMICCL_C10_CUDA_LIBRARY AND TARGET dyn_cuda)
      set(DYNAMICCL_TORCH_HAS_CUDA ON)
      set(first_libraries "${DYNAMICCL_TORCH_CUDA_LIBRARY},${DYNAMICCL_C10_CUDA_LIBRARY}")
      if(TARGET dyn_gloo)
        set(first_libraries "${DYNAMICCL_GLOO_LIBRARY},${first_libraries}")
      endif()
      # Its own libraries lie where its run path says, unknown to the linker. It also brings a CUDA runtime of its own,
      # which must not take calls from ours.
      target_link_libraries(dyn_torch INTERFACE "-Wl,--allow-shlib-undefined" "-Wl,--exclude-libs,libcudart_static.a"
        "-Wl,--no-as-needed,${first_libraries},--as-needed")
    endif()
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
