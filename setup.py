"""Package metadata; tool settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="gpflow_decoupled",
    version="0.2.0",
    description="Decoupled variational Gaussian processes on GPflow, trained by natural gradients",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The gpflow_decoupled authors",
    license="Apache-2.0",
    packages=find_packages(include=["gpflow_decoupled", "gpflow_decoupled.*"]),
    package_data={"gpflow_decoupled": ["py.typed"]},
    python_requires=">=3.10,<3.13",  # NumPy below 2, which GPflow needs, has no wheels for 3.13
    install_requires=[
        "gpflow>=2.10.1,<3",  # older ones import pkg_resources, which setuptools lacks from 81 on
        # older ones ask for tensorflow-macos there, which ends at 2.16
        "gpflow>=2.11.2,<3; sys_platform == 'darwin' and platform_machine == 'arm64'",
        "tensorflow>=2.16",  # older ones bring Keras 2 as tf.keras, which is not tested here
        "tensorflow-probability[tf]>=0.24",  # [tf] adds the tf-keras that matches
        "check-shapes>=1.0",  # shape contracts of public functions, as in GPflow
        "numpy>=1.26,<2",
        "scipy>=1.11",  # optimizers and k-means
        "tqdm>=4.60",  # progress line of fit
    ],
    extras_require={
        "demo": ["scikit-learn>=1.3", "matplotlib>=3.7", "pillow>=9"],
        "benchmark": ["scikit-learn>=1.3", "matplotlib>=3.7", "markdown-it-py>=2.2"],
        "gpytorch": ["gpytorch>=1.11"],  # a peer of the benchmarks
        "gpboost": ["gpboost>=1.5"],  # another
        "docs": [
            "sphinx>=7.2",
            "myst-nb>=1.1",  # pages in Markdown, and executed notebooks
            "furo>=2024.1.29",
            "jupytext>=1.16",  # notebooks are written as scripts
            "sphinx-mathjax-offline>=0.0.2",  # formulas without a network
            "matplotlib>=3.7",
            "pillow>=9",
            "scikit-learn>=1.6",  # the reference imports the estimators
        ],
        "sklearn": ["scikit-learn>=1.6"],  # its estimator checks and validate_data; the estimators
        "frames": ["pandas>=2", "scikit-learn>=1.6"],  # data frames with words and gaps
        "trieste": ["trieste>=4.6,<5"],  # its 4.6 wants TensorFlow below 2.19
        "test": [
            "scikit-learn>=1.6",
            "pandas>=2",
            "pytest>=7.4",
            "pytest-xdist>=3.3",
            "hypothesis>=6.100",
            "rich>=13",  # progress of the campaign
            "ruff>=0.6",
            "mypy>=1.8",
        ],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
